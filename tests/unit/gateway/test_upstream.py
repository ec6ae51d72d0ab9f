"""The gateway's link to its server."""

from __future__ import annotations

import pytest

from seqserve.errors import OptionError
from seqserve.tls import TLS
from seqserve_gateway.failure import Failure
from seqserve_gateway.upstream import Upstream, UpstreamSettings

REMOTE = "models.example.com:50051"
BEARER = (("authorization", "Bearer t1"),)


def test_token_of_a_caller_crosses_no_network_in_clear() -> None:
    assert Upstream(UpstreamSettings(target=REMOTE)).authorization("t1") == ()
    assert Upstream(UpstreamSettings(target="localhost:1")).authorization("t1") == BEARER
    assert Upstream(UpstreamSettings(target=REMOTE, tls=TLS())).authorization("t1") == BEARER


def test_own_token_is_for_callers_without_one() -> None:
    upstream = Upstream(UpstreamSettings(target="localhost:1", token="own"))
    assert upstream.authorization(None) == (("authorization", "Bearer own"),)
    assert upstream.authorization("t1") == BEARER


def test_malformed_token_is_no_valid_one() -> None:
    with pytest.raises(Failure) as refused:
        Upstream(UpstreamSettings(target="localhost:1", token="own")).authorization("")
    assert (refused.value.status, refused.value.details) == (401, "no valid token")


def test_own_token_is_not_sent_in_clear_either() -> None:
    with pytest.raises(OptionError, match="in clear"):
        Upstream(UpstreamSettings(target=REMOTE, token="own"))
