from __future__ import annotations

import pytest

from seqserve.command.advice import advice_on
from seqserve.errors import InternalError, OptionError, SeqserveError, Unauthenticated, Unavailable

HANDSHAKE = "Tls handshake failed: SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: unable"


@pytest.mark.parametrize(
    ("error", "advised"),
    [
        (Unavailable("UNAVAILABLE", "Connection refused"), "`seqserve serve` starts one"),
        (Unavailable("UNAVAILABLE", HANDSHAKE), "--tls-ca names the file"),
        (Unauthenticated("UNAUTHENTICATED", "send a token"), "SEQSERVE_TOKEN gives the token"),
    ],
)
def test_an_error_gets_advice(error: SeqserveError, advised: str) -> None:
    assert advised in advice_on(error)


@pytest.mark.parametrize("error", [OptionError("--port: no"), InternalError("INTERNAL", "fault")])
def test_an_error_that_needs_no_advice_gets_none(error: SeqserveError) -> None:
    assert advice_on(error) == ""
