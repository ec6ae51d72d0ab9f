import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve import TLS, AsyncClient, Client
from seqserve.auth import Quota, Scope, TokenEntry, digest_of, metadata_of, new_token, token_of
from seqserve.errors import OptionError

DIGEST = "ab" * 32


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    # 32 bytes, in base 64.
    assert {len(token.removeprefix("seqserve_")) for token in tokens} == {43}
    assert all(metadata_of(token, is_private=True) for token in tokens)


def test_a_line_has_scopes_in_any_order_and_quotas() -> None:
    assert digest_of("abc").hex() == hashlib.sha256(b"abc").hexdigest()
    entry = TokenEntry.parse(f"{DIGEST.upper()} admin,generate, web")
    assert str(entry) == f"{DIGEST} generate,admin web"
    line = f"{'0' * 64} generate shop characters/month=1000000 requests/day=5"
    entry = TokenEntry.parse(line)
    assert entry.quotas == (Quota("characters", "month", 1_000_000), Quota("requests", "day", 5))
    assert str(entry) == line
    with pytest.raises(OptionError, match="needs a name"):
        replace(entry, name="")


@given(
    st.binary(min_size=32, max_size=32),
    st.frozensets(st.sampled_from(Scope), min_size=1),
    st.from_regex(r"\A[A-Za-z0-9._-]{0,64}\Z"),
)
def test_a_written_line_is_read_back(digest: bytes, scopes: frozenset[Scope], name: str) -> None:
    entry = TokenEntry(digest=digest, scopes=scopes, name=name)
    assert TokenEntry.parse(str(entry)) == entry
    assert TokenEntry.parse(f"  {entry}\t\n") == entry


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "64 hex digits"),
        ("web", "64 hex digits"),
        (f"{DIGEST}0 generate", "64 hex digits"),
        (f"{DIGEST[:-1]}g generate", "64 hex digits"),
        (f"{DIGEST} generate a b", "^quota: must be"),
        (DIGEST, "^scope: is missing; available: generate, admin"),
        (f"{DIGEST} ,", "^scope: is missing"),
        (f"{DIGEST} everything web", "^scope: is unknown"),
        (f"{DIGEST} generate {'a' * 65}", "^name: "),
        (f"{DIGEST} generate naïve", "^name: "),
        (f"{DIGEST} generate tokens/day=5", "^name: must be"),
        (f"{DIGEST} generate shop characters/year=5", "^quota: must be"),
        (f"{DIGEST} generate shop characters/day=0", "^quota: must be"),
        (f"{DIGEST} generate shop characters/day=1e6", "^quota: must be"),
        (f"{DIGEST} generate shop tokens/day=5 tokens/day=6", "^quota: is given twice"),
    ],
)
def test_a_malformed_line_is_refused(line: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TokenEntry.parse(line)


def test_an_error_does_not_show_a_misplaced_token() -> None:
    token = new_token()
    for line in (token, f"{token} generate", f"{DIGEST} {token}", f"{DIGEST} generate x {token}"):
        with pytest.raises(OptionError) as caught:
            TokenEntry.parse(line)
        assert token not in str(caught.value)


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
        (f"Bearer {5000 * 'a'}", ""),
        (b"Bearer abc", ""),
    ],
)
def test_only_a_bearer_is_read(value: str | bytes, token: str) -> None:
    assert token_of([("user-agent", "x"), ("authorization", value)]) == token


def test_no_metadata_no_token() -> None:
    assert token_of([]) == token_of([("x-authorization", "Bearer abc")]) == ""
