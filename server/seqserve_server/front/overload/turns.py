"""Shares one thread between callers whose texts are read.

Long texts take seconds to divide and to tokenize. So they are read in slices of a few milliseconds,
one at a time, and callers with texts to read take turns. Between two slices the event loop and the
engines get their share of the processor, a call that is cancelled or late ends before its next one,
and a caller with many texts delays its own. Lives in the event loop; slices run in a thread.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import TypeAlias, TypeVar

SLICE_S = 0.002
"""Time after which a slice ends, once its last step is over."""

Result = TypeVar("Result")
Cooperative: TypeAlias = Generator[None, None, Result]
"""Work that pauses between steps of bounded time, and returns its result."""


class TextScheduler:
    """Whose texts are read next."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """Starts with nobody waiting."""
        self._clock = clock
        self._is_taken = False
        self._last_caller = ""
        # Callers in the order of their turns.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, caller: str, steps: Cooperative[Result]) -> Result:
        """Does work in slices, in turns with the work of others, and returns its result."""
        results: list[Result] = []
        try:
            while not results:
                await self._take(caller)
                try:
                    await _to_its_end(asyncio.to_thread(self._slice, steps, results))
                finally:
                    self._give()
        finally:
            steps.close()
        return results[0]

    def _slice(self, steps: Cooperative[Result], results: list[Result]) -> None:
        end_s = self._clock() + SLICE_S
        try:
            while self._clock() < end_s:
                next(steps)
        except StopIteration as end:
            results.append(end.value)

    async def _take(self, caller: str) -> None:
        if not self._is_taken:
            self._is_taken, self._last_caller = True, caller
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The turn came when it was no longer wanted.
                self._give()
            raise

    def _give(self) -> None:
        while self._waiting:
            # Nobody has two turns in a row while others wait.
            others = (caller for caller in self._waiting if caller != self._last_caller)
            self._last_caller = caller = next(others, self._last_caller)
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._is_taken = False


async def _to_its_end(coroutine: Coroutine[None, None, None]) -> None:
    """Awaits a thread, also where the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def run_now(steps: Cooperative[Result]) -> Result:
    """Does all steps without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result
