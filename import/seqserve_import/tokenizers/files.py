"""Reads the files that describe a checkpoint's tokenizer."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqserve.errors import OptionError

AGAIN = "copy it again from where the checkpoint is from"


def read_bytes(path: Path) -> bytes:
    """Returns the content of a file; what is compressed as ``….gz`` is expanded.

    Raises:
        OptionError: The file is missing or cannot be read.
    """
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    except FileNotFoundError:
        raise OptionError(f"{path}: is missing; the tokenizer needs it, {AGAIN}") from None
    except OSError as error:
        raise OptionError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise OptionError(f"{path}: cannot be expanded: {error}; {AGAIN}") from None


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        OptionError: The file is missing, cannot be read or holds something else.
    """
    try:
        content = json.loads(read_bytes(path))
    except ValueError as error:
        raise OptionError(f"{path}: is not JSON ({error}); {AGAIN}") from None
    if not isinstance(content, dict):
        raise OptionError(f"{path}: is not a JSON object; {AGAIN}")
    return content


def read_settings(folder: Path) -> dict[str, Any]:
    """Returns ``tokenizer_config.json``; an empty object if the checkpoint has none."""
    path = folder / "tokenizer_config.json"
    return read_object(path) if path.exists() else {}


def read_rows(folder: Path, name: str = "vocab_size") -> int:
    """Returns a number of embeddings from ``config.json``; 0 if it is not there."""
    path = folder / "config.json"
    rows = read_object(path).get(name) if path.exists() else None
    return rows if type(rows) is int else 0


def read_vocabulary(path: Path) -> list[str]:
    """Returns the tokens of a ``vocab.json``, which maps tokens to ids, in the order of their ids.

    Raises:
        OptionError: The ids are not 0, 1, 2 and so on, each for one token.
    """
    return in_order_of_ids(path, read_object(path))


def in_order_of_ids(path: Path, ids: Mapping[str, Any]) -> list[str]:
    """Returns tokens in the order of their ids.

    Raises:
        OptionError: The ids are not 0, 1, 2 and so on, each for one token.
    """
    if not ids or sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise OptionError(f"{path}: its ids are not 0 to {len(ids) - 1}, once each; {AGAIN}")
    return sorted(ids, key=ids.__getitem__)
