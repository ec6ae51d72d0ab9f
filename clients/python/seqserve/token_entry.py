"""A line of the file of tokens: a token's hash, what it may do, and its name.

The file holds no token, so that who reads it can call nothing. A token is 32 random bytes: its
SHA-256 needs no salt, for nobody can list all tokens beforehand.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from enum import Enum

from seqserve.errors import OptionError

# What finds secrets in places where none should be knows them by such a mark.
_MARK = "seqserve_"
_BYTES = 32
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Scope(Enum):
    """What a token may do."""

    GENERATE = "generate"
    """Call models, and ask which there are."""
    ADMIN = "admin"
    """Change what is served."""


def new_token() -> str:
    """Makes a token."""
    return _MARK + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> bytes:
    """Gives what the file holds of a token: its SHA-256."""
    return hashlib.sha256(token.encode()).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEntry:
    """What a server knows of a token."""

    digest: bytes
    scopes: frozenset[Scope]
    name: str = ""
    """Whose it is, for the log; empty where the line does not say."""

    def __post_init__(self) -> None:
        """Refuses what no line could hold.

        Raises:
            OptionError: The scopes are none, or the name is not one word of a plain kind.
        """
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
            OptionError: It is malformed; the message shows nothing of it, for somebody may have put
                a token there.
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
