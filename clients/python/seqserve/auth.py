"""Tokens: how a call carries one, and the line that makes a server accept it.

A client sends its token in the metadata of each call. The server's file of tokens holds a hash,
scopes, a name and quotas, so reading it does not allow any call. A token is 32 random bytes, so its
SHA-256 needs no salt: the hashes of all tokens cannot be precomputed.
Source: RFC 6750, "The OAuth 2.0 Authorization Framework: Bearer Token Usage", section 2.1.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from seqserve.errors import OptionError

# Scanners for leaked secrets recognise tokens by this prefix.
_PREFIX = "seqserve_"
_BYTES = 32
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_QUOTA = re.compile(r"(requests|characters|tokens)/(day|month)=([1-9][0-9]{0,14})")
_KEY = "authorization"
# Metadata has at most 16 KiB.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{1,4096}={0,2}")
_VALUE = re.compile(rf"Bearer +({_TOKEN.pattern})", re.IGNORECASE)


class Scope(Enum):
    """The calls that a token allows."""

    GENERATE = "generate"
    """Call models and list them."""
    ADMIN = "admin"
    """Change what is served."""


_SCOPES = ", ".join(scope.value for scope in Scope)


def new_token() -> str:
    """Makes a token."""
    return _PREFIX + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Returns the SHA-256 of a token."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit on the usage of one token name in a day or a month, in UTC."""

    kind: str
    """``"requests"``, ``"characters"`` or ``"tokens"``."""
    period: str
    """``"day"`` or ``"month"``."""
    limit: int

    def __str__(self) -> str:
        return f"{self.kind}/{self.period}={self.limit}"

    @classmethod
    def parse(cls, text: str) -> Quota:
        """Reads ``characters/month=1000000``."""
        match = _QUOTA.fullmatch(text)
        if match is None:
            raise OptionError(
                "quota: must be requests, characters or tokens by day or month, such as"
                " characters/month=1000000"
            )
        return cls(match[1], match[2], int(match[3]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """A line in the server's file of tokens."""

    digest: bytes
    scopes: frozenset[Scope]
    name: str = ""
    """Name of the owner, for the log; empty if the line has none."""
    quotas: tuple[Quota, ...] = ()
    """Quotas of this name."""

    def __post_init__(self) -> None:
        if not self.scopes:
            raise OptionError(f"scope: is missing; available: {_SCOPES}")
        if self.name and not _NAME.fullmatch(self.name):
            raise OptionError("name: must be 1 to 64 letters, digits, dots, dashes, underscores")
        if self.quotas and not self.name:
            raise OptionError("quota: needs a name, by which calls are counted")
        if len({(quota.kind, quota.period) for quota in self.quotas}) < len(self.quotas):
            raise OptionError("quota: is given twice for the same period")

    def __str__(self) -> str:
        scopes = ",".join(scope.value for scope in Scope if scope in self.scopes)
        return " ".join([self.digest.hex(), scopes, self.name, *map(str, self.quotas)]).rstrip()

    @classmethod
    def parse(cls, line: str) -> TokenEntry:
        """Reads a line.

        Raises:
            OptionError: The line is malformed; the message does not show it, because it may have a
                token.
        """
        digest, words, name, *more = [*line.split(), "", "", ""]
        if not _DIGEST.fullmatch(digest):
            raise OptionError("must be a SHA-256 of 64 hex digits, scopes, a name and quotas")
        try:
            scopes = frozenset(Scope(word) for word in words.split(",") if word)
        except ValueError:
            raise OptionError(f"scope: is unknown; available: {_SCOPES}") from None
        quotas = tuple(map(Quota.parse, filter(None, more)))
        return cls(digest=bytes.fromhex(digest), scopes=scopes, name=name, quotas=quotas)


def metadata_of(token: str | None, *, is_private: bool) -> tuple[tuple[str, str], ...]:
    """Returns the metadata of a call with a token; none without a token."""
    if token is None:
        return ()
    if not (isinstance(token, str) and _TOKEN.fullmatch(token)):
        # The error does not show the token, which may be a secret even if it is malformed.
        raise OptionError(
            "token: is empty or has a character that no token has, or too many, or is no text;"
            " `seqserve token` makes one"
        )
    if not is_private:
        raise OptionError(
            "token: would cross the network in clear; use TLS (tls=TLS(...), or --tls)"
        )
    return ((_KEY, f"Bearer {token}"),)


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Returns the token in a call's metadata; empty without one."""
    for key, value in metadata:
        if key == _KEY and isinstance(value, str):
            bearer = _VALUE.fullmatch(value)
            return bearer[1] if bearer else ""
    return ""
