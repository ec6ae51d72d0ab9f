"""Results as JSON, one object a line, for the options ``--json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any


def json_line(facts: Mapping[str, Any]) -> str:
    """Writes facts in one line; a member of an enum becomes its value, what is no number null."""
    return json.dumps(_plain(facts), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, Enum):
        return value.value
    # JSON has no word for NaN, nor for infinity, which a word that was ruled out may score.
    return None if isinstance(value, float) and not math.isfinite(value) else value
