"""How many calls are under way, of a server or of one version of a model."""

from __future__ import annotations

import asyncio


class ActiveCalls:
    """Counts calls, and wakes whoever waits for the last one; lives in the event loop."""

    def __init__(self) -> None:
        """Begins with none."""
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    def enter(self) -> None:
        """Notes a call that begins."""
        self._count += 1
        self._none.clear()

    def leave(self) -> None:
        """Notes a call that is over."""
        self._count -= 1
        if not self._count:
            self._none.set()

    async def wait_none(self, timeout_s: float | None = None) -> bool:
        """Waits until no call is under way; False where time ran out, which None does not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._none.wait()
        except TimeoutError:
            return False
        return True
