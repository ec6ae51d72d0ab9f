"""Reads the files of a checkpoint, which may be damaged or hostile.

Only regular files are opened, and no more is read, or expanded, than a checkpoint has.
"""

import gzip
import json
import re
import stat
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from seqserve.errors import SeqserveError

AGAIN = "copy it again from where the checkpoint is from"
MAX_BYTES = 1 << 32
"""Maximum expanded size of a file that is read at once, such as Marian's weights."""
MAX_TEXT_BYTES = 1 << 28
"""Maximum of settings and vocabularies; the largest tokenizers take a tenth."""

_LFS = b"version https://git-lfs.github.com/spec/"
# An alias is an asterisk before a name; in most vocabularies asterisks occur only within quotes.
_MAYBE_ALIAS = re.compile(rb"(?:^|[\s,:\[{-])\*[^\s\"']", re.MULTILINE)
# Those in C are ten times as fast; some builds of the library lack them.
_TYPED = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class CheckpointError(SeqserveError):
    """A checkpoint is damaged, or of a kind that cannot be imported."""


def check_regular(path: Path) -> None:
    """Raises an error unless a path is a regular file, before it is opened.

    Raises:
        CheckpointError: The file is missing, a pipe or a device, or a pointer of Git LFS.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError(f"{path}: is not a regular file; {AGAIN}")
        with path.open("rb") as file:
            begin = file.read(len(_LFS))
    except FileNotFoundError:
        raise CheckpointError(f"{path}: is missing; {AGAIN}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if begin == _LFS:
        raise CheckpointError(
            f"{path}: is a pointer of Git LFS, not the file itself; run `git lfs pull` in its"
            " folder, or download the checkpoint with `hf download NAME --local-dir FOLDER`"
        )


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Returns the content of a file, at most ``limit`` bytes; a compressed ``….gz`` is expanded.

    Raises:
        CheckpointError: The file cannot be read, or is larger.
    """
    check_regular(path)
    try:
        with path.open("rb") as raw:
            if path.suffix != ".gz":
                content = raw.read(limit + 1)
            else:
                with gzip.open(raw) as expanded:
                    content = expanded.read(limit + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CheckpointError(f"{path}: cannot be expanded: {error}; {AGAIN}") from None
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(content) > limit:
        raise CheckpointError(f"{path}: holds more than {limit:,} bytes, the largest allowed")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file.

    Raises:
        CheckpointError: The file cannot be read, or holds something else.
    """
    try:
        content = json.loads(read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: is not JSON ({error}); {AGAIN}") from None
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: is not a JSON object; {AGAIN}")
    return content


def read_optional_object(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, or an empty one if there is no file.

    Raises:
        CheckpointError: As :func:`read_object`.
    """
    return read_object(path) if path.exists() else {}


def read_mapping(path: Path, content: bytes, *, is_typed: bool = True) -> dict[Any, Any]:
    """Returns the mapping in a text of YAML, in which Marian keeps settings and vocabularies.

    Args:
        path: The file, for messages. content: Its content. is_typed: Whether ``no`` is false and
        ``1`` a number; otherwise all keys and values are texts.

    Raises:
        CheckpointError: It is not YAML, not a mapping, or refers to parts of itself, which may make
            gigabytes of a few lines.
    """
    loader = _TYPED if is_typed else _TEXTS
    try:
        if _MAYBE_ALIAS.search(content) and any(
            isinstance(event, yaml.AliasEvent) for event in yaml.parse(content, loader)
        ):
            raise CheckpointError(f"{path}: has an alias of YAML (*), which is not read")
        values = yaml.load(content, loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: is not YAML ({reason:.200}); {AGAIN}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: is not a mapping; {AGAIN}")
    return values


def in_order_of_ids(path: Path, ids: Mapping[str, Any]) -> list[str]:
    """Returns tokens in the order of their ids.

    Raises:
        CheckpointError: The ids are not 0, 1, 2 and so on, each for one token.
    """
    if not ids or sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        raise CheckpointError(f"{path}: its ids are not 0 to {len(ids) - 1}, once each; {AGAIN}")
    return sorted(ids, key=ids.__getitem__)
