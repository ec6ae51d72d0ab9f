"""Bearer tokens: when a client sends one, and how a server reads it."""

from __future__ import annotations

import pytest

from seqserve import TLS, AsyncClient, Client, OptionError
from seqserve.bearer import metadata_of, token_of
from seqserve.token_entry import new_token

from .fake_server import FakeServer


def test_a_token_in_metadata_is_read_back() -> None:
    token = new_token()
    metadata = metadata_of(token, is_private=True)
    assert metadata == (("authorization", f"Bearer {token}"),)
    assert token_of(metadata) == token
    assert metadata_of(None, is_private=False) == ()


@pytest.mark.parametrize(
    "target",
    ["example.com:1", "10.0.0.1:1", "localhost:1,10.0.0.1:1", "0.0.0.0:1", "dns:///localhost:1"],
)
def test_a_token_is_not_sent_in_clear(target: str) -> None:
    for client in (Client, AsyncClient):
        with pytest.raises(OptionError, match=r"^token: would cross the network in clear; use TLS"):
            client(target, token="abc")
    Client(target, tls=TLS(server_name="example.com"), token="abc").close()


def test_a_token_is_sent_within_this_machine(server: FakeServer) -> None:
    with Client(server.target, token="abc") as client:
        client.generate("good day")
    with Client(server.target) as client:
        client.generate("good day")
    assert server.authorizations == ["Bearer abc", None]


@pytest.mark.parametrize("token", ["", " ", "two words", "line\n", "naïve", "=", 'a"b'])
def test_a_malformed_token_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(OptionError, match=r"^token: is empty or has") as caught:
        metadata_of(token, is_private=True)
    if token.strip("= "):
        assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer  abc==", "abc=="),
        ("abc", ""),
        ("Basic abc", ""),
        ("Bearer", ""),
        ("Bearer ", ""),
        ("Bearer a b", ""),
        ("Bearer abc ", ""),
        (b"Bearer abc", ""),
    ],
)
def test_only_a_bearer_is_read(value: str | bytes, token: str) -> None:
    assert token_of([("user-agent", "x"), ("authorization", value)]) == token


def test_no_metadata_no_token() -> None:
    assert token_of([]) == token_of([("x-authorization", "Bearer abc")]) == ""
