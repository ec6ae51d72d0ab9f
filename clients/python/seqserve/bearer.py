"""The token that a caller shows with every call, as metadata.

Source: RFC 6750, "The OAuth 2.0 Authorization Framework: Bearer Token Usage", section 2.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from seqserve.errors import OptionError

KEY = "authorization"

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_VALUE = re.compile(rf"Bearer +({_TOKEN.pattern})", re.IGNORECASE)


def metadata_of(token: str | None, *, is_private: bool) -> tuple[tuple[str, str], ...]:
    """Gives what goes with each call; nothing where there is no token.

    Args:
        token: What the server knows the hash of.
        is_private: Whether nobody else can read the connection.

    Raises:
        OptionError: It is malformed, or strangers could read it.
    """
    if token is None:
        return ()
    if not _TOKEN.fullmatch(token):
        # Whatever it is, it may be a secret: it is not shown.
        raise OptionError(
            "token: is empty or has a character that no token has; `seqserve token` makes one"
        )
    if not is_private:
        raise OptionError(
            "token: would cross the network in clear; use TLS (tls=TLS(...), or --tls)"
        )
    return ((KEY, f"Bearer {token}"),)


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Gives the token that came with a call; empty where there is none."""
    for key, value in metadata:
        if key == KEY and isinstance(value, str):
            found = _VALUE.fullmatch(value)
            return found[1] if found else ""
    return ""
