"""Turns between callers: a few tasks run at a time, and no caller keeps others from theirs."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from seqserve_gateway.failure import Failure


class _Waiting(NamedTuple):
    size: int
    place: asyncio.Future[None]


class Turns:
    """Places for tasks; callers take turns at those that become free.

    So a caller waits for one task of each other caller, however many tasks they have.
    """

    def __init__(self, places: int, own_places: int, most_waiting: float = math.inf) -> None:
        """Starts with all places free.

        Args:
            places: Of all tasks at a time.
            own_places: Of the tasks of one caller.
            most_waiting: Most tasks of one caller that wait.
        """
        self._free, self._own, self._most_waiting = places, own_places, most_waiting
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[_Waiting]] = {}

    @asynccontextmanager
    async def turn(self, caller: str, size: int = 1) -> AsyncGenerator[None, None]:
        """Waits for places, and holds them until the block ends.

        Args:
            caller: Whose turn it is.
            size: How many places the task takes; no more than one caller may have.

        Raises:
            Failure: Too many tasks of the caller wait already.
        """
        task = _Waiting(size, asyncio.get_running_loop().create_future())
        waiting = self._waiting.setdefault(caller, deque())
        if len(waiting) >= self._most_waiting:
            raise Failure("RESOURCE_EXHAUSTED", "too many requests wait for their turn")
        waiting.append(task)
        self._hand_out()
        try:
            await task.place
            yield
        finally:
            if task.place.cancelled():
                self._leave(caller, task)
            else:
                self._free += size
                self._running -= Counter({caller: size})
            self._hand_out()

    def _hand_out(self) -> None:
        while (found := next(self._allowed(), None)) is not None and found[1].size <= self._free:
            caller, task = found
            self._free -= task.size
            self._running[caller] += task.size
            self._leave(caller, task)
            task.place.set_result(None)

    def _allowed(self) -> Iterator[tuple[str, _Waiting]]:
        for caller, waiting in self._waiting.items():
            # A task that is cancelled may not have left yet.
            task = next((each for each in waiting if not each.place.done()), None)
            if task is not None and self._running[caller] + task.size <= self._own:
                yield caller, task

    def _leave(self, caller: str, task: _Waiting) -> None:
        # Those that stay come after the tasks of all others.
        waiting = self._waiting.pop(caller)
        waiting.remove(task)
        if waiting:
            self._waiting[caller] = waiting
