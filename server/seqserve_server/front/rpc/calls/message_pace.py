"""Decides when a stream sends its new tokens.

A message costs far more than its tokens. So where many requests are under way, the tokens of a
short while go in one: with the first token after it, or with the answer. That is still faster than
people read. The first tokens of a stream never wait, and where few requests are under way none do.
"""

from __future__ import annotations

import time
from collections.abc import Callable

FEW = 16
"""Requests under way on an engine up to which every token is sent at once."""
GATHER_S = 0.05
"""How long tokens are gathered from when a message was due."""


class MessagePace:
    """When one stream may send."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Starts with a message due."""
        self._clock = clock
        self._due_s = 0.0

    def is_due(self, under_way: int) -> bool:
        """Tells whether a message is due, now that there are new tokens.

        Args:
            under_way: Requests that have not ended, on all engines of the version.
        """
        now_s = self._clock()
        if under_way > FEW and now_s < self._due_s:
            return False
        self._due_s = now_s + GATHER_S
        return True
