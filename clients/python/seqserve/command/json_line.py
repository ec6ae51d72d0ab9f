"""JSON, one object a line, for ``--json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any


def json_line(facts: Mapping[str, Any]) -> str:
    """Writes one line; an enum member becomes its value, NaN and infinity become null."""
    return json.dumps(_plain(facts), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Enum):
        return value.value
    # JSON has no NaN, and no infinity, which is the score of a suppressed token.
    return None if isinstance(value, float) and not math.isfinite(value) else value
