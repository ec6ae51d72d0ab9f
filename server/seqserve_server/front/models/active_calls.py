"""Counts the calls in progress, of a server or of one version of a model."""

from __future__ import annotations

import asyncio


class ActiveCalls:
    """Counts calls and wakes the tasks that wait for none to be left; used in the event loop."""

    def __init__(self) -> None:
        """Starts at zero."""
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """Counts a call that begins."""
        self._count += 1
        self._idle.clear()

    def leave(self) -> None:
        """Counts a call that has ended."""
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Waits until no call is in progress; returns False on timeout. None waits forever."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True
