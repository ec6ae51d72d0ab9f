"""Ids of requests: callers may choose them, answers repeat them, and logs have them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

REQUEST_ID = "x-request-id"
"""The key of the id, in gRPC's metadata and in the headers of HTTP."""
PATTERN = r"[A-Za-z0-9._:/+=-]{1,64}"
"""What an id may be, as a regular expression."""
_SANE_ID = re.compile(PATTERN)


def request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Takes the client's id for a call if it is well-formed, or makes a new one."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _SANE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)
