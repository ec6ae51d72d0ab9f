"""What is known of the call at hand, for its line in the log and for the metrics."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

REQUEST_ID = "x-request-id"

_SANE_ID = re.compile(r"[A-Za-z0-9._:/+=-]{1,64}")


caller: ContextVar[str] = ContextVar("caller", default="")
"""Name of the token of the call that comes in."""


@dataclass(slots=True, kw_only=True)
class CallRecord:
    """One call, from its arrival on."""

    method: str
    request_id: str
    began_s: float = field(default_factory=time.monotonic)
    model: str = ""
    """Empty until it is known to exist, so that no caller can make up labels."""
    caller: str = field(default_factory=lambda: caller.get())
    """Name of the token that was shown; empty where it has none, or none was asked for."""
    facts: dict[str, float] = field(default_factory=dict)
    """What else its line in the log says: counts and times, never text."""

    def part(self, began_s: float) -> CallRecord:
        """Begins the record of one of many sources, which came at a time of its own."""
        return replace(self, began_s=began_s, facts={})

    def add(self, **counts: float) -> None:
        """Adds to facts that are sums."""
        for name, count in counts.items():
            self.facts[name] = self.facts.get(name, 0) + count


current: ContextVar[CallRecord] = ContextVar("call")
"""Of the handler that runs."""


def request_id(metadata: Sequence[tuple[str, str | bytes]] | None) -> str:
    """Takes the caller's id for the call where it is a sane one, or makes one."""
    for key, value in metadata or ():
        if key == REQUEST_ID and isinstance(value, str) and _SANE_ID.fullmatch(value):
            return value
    return secrets.token_hex(8)
