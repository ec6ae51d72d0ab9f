"""Bearer tokens in the metadata of calls.

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
    """Returns the metadata of a call with a token; none without a token.

    Raises:
        OptionError: The token is malformed, or the connection is not private.
    """
    if token is None:
        return ()
    if not _TOKEN.fullmatch(token):
        # The error does not show the token, which may be a secret even if it is malformed.
        raise OptionError(
            "token: is empty or has a character that no token has; `seqserve token` makes one"
        )
    if not is_private:
        raise OptionError(
            "token: would cross the network in clear; use TLS (tls=TLS(...), or --tls)"
        )
    return ((KEY, f"Bearer {token}"),)


def token_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """Returns the token of a call from its metadata; empty if there is none."""
    for key, value in metadata:
        if key == KEY and isinstance(value, str):
            found = _VALUE.fullmatch(value)
            return found[1] if found else ""
    return ""
