"""An event loop that wakes in time for arrivals."""

from __future__ import annotations

import asyncio
import select
import selectors
from typing import Any

if hasattr(selectors, "EpollSelector"):

    class _PreciseSelector(selectors.EpollSelector):
        """Waits for an epoll by select, in microseconds: epoll waits in whole milliseconds."""

        def select(self, timeout: float | None = None) -> list[Any]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)
else:
    _PreciseSelector = selectors.DefaultSelector  # type: ignore[misc,assignment]


def precise_loop() -> asyncio.AbstractEventLoop:
    """Makes an event loop whose waits end in time, not up to a millisecond late."""
    return asyncio.SelectorEventLoop(_PreciseSelector())
