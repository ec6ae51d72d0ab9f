"""Reads YAML, in which Marian keeps settings and vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from seqserve_import.checkpoint import CheckpointError

# Those in C are ten times as fast; some builds of the library lack them.
_TYPED = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXTS = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def parse(path: Path, content: bytes, *, is_typed: bool = True) -> dict[Any, Any]:
    """Reads a mapping.

    Args:
        path: The file, for messages.
        content: What it holds.
        is_typed: Whether ``no`` is false and ``1`` a number; else all keys and values are texts.

    Raises:
        CheckpointError: It is no YAML, or no mapping.
    """
    try:
        values = yaml.load(content, _TYPED if is_typed else _TEXTS)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(f"{path}: is not YAML ({reason:.200}); copy it again") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path}: is not a mapping; copy it again")
    return values
