"""Metadata of a call: the id of the request, and pairs that a caller adds."""

import re
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from seqserve.errors import invalid_argument

REQUEST_ID = "x-request-id"
"""The key of the id, in gRPC's metadata and in the headers of HTTP."""
REQUEST_ID_PATTERN = r"[A-Za-z0-9._:/+=-]{1,64}"
"""Pattern of valid ids."""
_SANE_ID = re.compile(REQUEST_ID_PATTERN)


def request_id(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """Returns the client's id for a call if it is well-formed, or a new one."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _SANE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)


Metadata: TypeAlias = tuple[tuple[str, str], ...]
MetadataSource: TypeAlias = Callable[[], Iterable[tuple[str, str]]]
"""Returns the metadata of a call; called for every attempt."""

_KEY = re.compile(r"[a-z0-9_.-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
_BINARY = "-bin"
_refused = partial(invalid_argument, "metadata")


def checked_metadata(pairs: Iterable[Any]) -> Metadata:
    """Returns pairs of key and value; raises ``InvalidArgument`` for those that gRPC refuses."""
    if isinstance(pairs, str | bytes) or not isinstance(pairs, Iterable):
        raise _refused(f"{type(pairs).__name__} is not a list of pairs of key and value")
    return tuple(_checked(pair) for pair in pairs)


def _checked(pair: Any) -> tuple[str, str]:
    # A text of two characters would pass for a pair.
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise _refused(f"{type(pair).__name__} is not a pair of key and value")
    key, value = pair
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise _refused(f"the key {key!r:.80} must have only lower-case letters, digits and '-_.'")
    # The error does not show the value, which may be a secret.
    if key.endswith(_BINARY):
        if not isinstance(value, bytes):
            raise _refused(f"the value of {key!r} must be bytes, because the key ends in -bin")
    elif not isinstance(value, str) or not _TEXT.fullmatch(value):
        raise _refused(f"the value of {key!r} must be a text of printable ASCII characters")
    return key, value
