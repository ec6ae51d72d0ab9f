"""A line in the server's file of tokens: the hash of a token, its scopes and its name.

The file has no token, so reading it does not allow any call. A token is 32 random bytes, so its
SHA-256 needs no salt: nobody can precompute the hashes of all tokens.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import Enum

from seqserve.errors import OptionError

# Scanners for leaked secrets recognise tokens by this prefix.
_MARK = "seqserve_"
_BYTES = 32
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Scope(Enum):
    """The calls that a token allows."""

    GENERATE = "generate"
    """Call models and list them."""
    ADMIN = "admin"
    """Change what is served."""


def new_token() -> str:
    """Makes a token."""
    return _MARK + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Returns the SHA-256 of a token."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """The hash, scopes and name of a token."""

    digest: bytes
    scopes: frozenset[Scope]
    name: str = ""
    """Name of the owner, for the log; empty if the line has none."""

    def __post_init__(self) -> None:
        """Checks that a line can hold the entry."""
        if not self.scopes:
            raise OptionError(f"scope: is missing; there are {_CHOICES}")
        if self.name and not _NAME.fullmatch(self.name):
            raise OptionError("name: must be 1 to 64 letters, digits, dots, dashes, underscores")

    def __str__(self) -> str:
        """Writes the line."""
        scopes = ",".join(scope.value for scope in Scope if scope in self.scopes)
        return f"{self.digest.hex()} {scopes} {self.name}".rstrip()

    @classmethod
    def parse(cls, line: str) -> TokenEntry:
        """Reads a line.

        Raises:
            OptionError: The line is malformed; the message does not show it, because it may have a
                token.
        """
        digest, scopes, name, *more = [*line.split(), "", "", ""]
        if any(more) or not _DIGEST.fullmatch(digest):
            raise OptionError("must be a SHA-256 of 64 hex digits, scopes and a name")
        try:
            found = frozenset(Scope(word) for word in scopes.split(",") if word)
        except ValueError:
            raise OptionError(f"scope: is unknown; there are {_CHOICES}") from None
        return cls(digest=bytes.fromhex(digest), scopes=found, name=name)


_CHOICES = ", ".join(scope.value for scope in Scope)
