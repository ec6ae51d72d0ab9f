"""Tokens, and their lines in the server's file."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve.bearer import metadata_of
from seqserve.errors import OptionError
from seqserve.token_entry import Scope, TokenEntry, digest_of, new_token

DIGEST = "ab" * 32


def test_tokens_are_long_and_never_the_same() -> None:
    tokens = {new_token() for _ in range(100)}
    assert len(tokens) == 100
    for token in tokens:
        # 32 bytes, in base 64.
        assert len(token.removeprefix("seqserve_")) == 43
        assert metadata_of(token, is_private=True)


def test_digest_is_what_other_tools_compute() -> None:
    assert digest_of("abc").hex() == hashlib.sha256(b"abc").hexdigest()


@given(
    st.binary(min_size=32, max_size=32),
    st.frozensets(st.sampled_from(Scope), min_size=1),
    st.from_regex(r"\A[A-Za-z0-9._-]{0,64}\Z"),
)
def test_a_written_line_is_read_back(digest: bytes, scopes: frozenset[Scope], name: str) -> None:
    entry = TokenEntry(digest=digest, scopes=scopes, name=name)
    assert TokenEntry.parse(str(entry)) == entry
    assert TokenEntry.parse(f"  {entry}\t\n") == entry


def test_the_order_of_scopes_does_not_matter() -> None:
    entry = TokenEntry.parse(f"{DIGEST.upper()} admin,generate, web")
    assert str(entry) == f"{DIGEST} generate,admin web"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "64 hex digits"),
        ("web", "64 hex digits"),
        (f"{DIGEST}0 generate", "64 hex digits"),
        (f"{DIGEST[:-1]}g generate", "64 hex digits"),
        (f"{DIGEST} generate a b", "64 hex digits"),
        (DIGEST, "^scope: is missing; there are generate, admin"),
        (f"{DIGEST} ,", "^scope: is missing"),
        (f"{DIGEST} everything web", "^scope: is unknown"),
        (f"{DIGEST} generate {'a' * 65}", "^name: "),
        (f"{DIGEST} generate naïve", "^name: "),
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
