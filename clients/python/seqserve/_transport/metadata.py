"""What the caller gives to go with a call: only what gRPC takes, else an error that names it.

gRPC itself calls it a fault of the server, or raises errors of its own.
Source: https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md, Custom-Metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, TypeAlias

from seqserve.errors import InvalidArgument

Metadata: TypeAlias = tuple[tuple[str, str], ...]

_KEY = re.compile(r"[a-z0-9_.-]+")
_TEXT = re.compile(r"[\x20-\x7e]*")
_BINARY = "-bin"


def checked_metadata(given: Iterable[Any]) -> Metadata:
    """Gives pairs of key and value as they are.

    Raises:
        InvalidArgument: One is no pair, or gRPC would not take it.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise _refused(f"{type(given).__name__} is no list of pairs of key and value")
    return tuple(_checked(pair) for pair in given)


def _checked(pair: Any) -> tuple[str, str]:
    # A text of two characters would pass for a pair.
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise _refused(f"{type(pair).__name__} is no pair of key and value")
    key, value = pair
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise _refused(f"the key {key!r:.80} is not of lower-case letters, digits and '-_.'")
    # Whatever the value is, it may be a secret: it is not shown.
    if key.endswith(_BINARY):
        if not isinstance(value, bytes):
            raise _refused(f"the value of {key!r} is not of bytes, as keys that end in -bin have")
    elif not isinstance(value, str) or not _TEXT.fullmatch(value):
        raise _refused(f"the value of {key!r} is not a text of printable ASCII characters")
    return key, value


def _refused(reason: str) -> InvalidArgument:
    return InvalidArgument("INVALID_ARGUMENT", f"metadata: {reason}", field="metadata")
