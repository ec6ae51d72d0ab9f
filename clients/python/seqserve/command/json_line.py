"""Results as JSON, one object a line, for the options ``--json``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Any


def json_line(facts: Mapping[str, Any]) -> str:
    """Writes facts in one line; a member of an enum becomes its value."""
    return json.dumps(facts, ensure_ascii=False, default=_value_of)


def _value_of(member: Enum) -> Any:
    return member.value
