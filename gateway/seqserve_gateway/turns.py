"""Turns between callers: a few tasks run at a time, and no caller keeps others from theirs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from seqserve_gateway.failure import Failure


class Turns:
    """Places for tasks; callers take turns at those that become free.

    So a caller waits for one task of each other caller, however many tasks they have.
    """

    def __init__(self, places: int, own_places: int, most_waiting: float = math.inf) -> None:
        """Starts with all places free.

        Args:
            places: Most tasks at a time.
            own_places: Most tasks of one caller.
            most_waiting: Most tasks of one caller that wait.
        """
        self._free, self._own, self._most_waiting = places, own_places, most_waiting
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncGenerator[None, None]:
        """Waits for a place, and holds it until the block ends.

        Raises:
            Failure: Too many tasks of the caller wait already.
        """
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(caller, deque())
        if len(waiting) >= self._most_waiting:
            raise Failure("RESOURCE_EXHAUSTED", "too many requests wait for their turn")
        waiting.append(place)
        self._hand_out()
        try:
            await place
            yield
        finally:
            if place.cancelled():
                self._leave(caller, place)
            else:
                self._free += 1
                self._running -= Counter([caller])
                self._hand_out()

    def _hand_out(self) -> None:
        for caller, waiting in self._waiting.items():
            # A task that is cancelled may not have left yet.
            place = next((each for each in waiting if not each.done()), None)
            if self._free and place is not None and self._running[caller] < self._own:
                self._free -= 1
                self._running[caller] += 1
                self._leave(caller, place)
                place.set_result(None)
                return

    def _leave(self, caller: str, place: asyncio.Future[None]) -> None:
        # Those that stay come after the tasks of all others.
        waiting = self._waiting.pop(caller)
        waiting.remove(place)
        if waiting:
            self._waiting[caller] = waiting
