"""Shares one thread between callers whose texts are read.

Long texts take seconds to divide and to tokenize. So they are read in slices of a few milliseconds,
one at a time, and callers with texts to read take turns. Between two slices the event loop and the
engines get their share of the processor, a call that is cancelled or late ends before its next one,
and a caller with many texts delays its own. Lives in the event loop; slices run in a thread.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Generator
from typing import TypeAlias, TypeVar

from seqserve_server.contract.errors import Bound
from seqserve_server.front.overload.memory import MAX_WAIT_S, FairMemory, RoundRobin

SLICE_S = 0.002
"""Time after which a slice ends, once its last step is over."""

Result = TypeVar("Result")
Cooperative: TypeAlias = Generator[None, None, Result]
"""Work that pauses between steps of bounded time, and returns its result."""


# Texts that are read at once; they take about a millisecond.
_FEW_CHARACTERS = 1024
# Memory for the tokens of a character, in scripts with several tokens a character.
_CHARACTER_BYTES = 64
# Two callers may have a text of a megabyte read at the same time.
_TEXTS_BYTES = 128_000_000


class Turns:
    """Turns at a resource with one user at a time; each caller has its own queue."""

    def __init__(self) -> None:
        self._is_taken = False
        self._last_caller = ""
        self._waiting: RoundRobin[asyncio.Future[None]] = RoundRobin()

    async def take(self, caller: str) -> None:
        """Waits for a turn, which lasts until :meth:`give`."""
        if not self._is_taken:
            self._is_taken, self._last_caller = True, caller
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(caller, turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The turn came when it was no longer wanted.
                self.give()
            raise

    def give(self) -> None:
        """Ends a turn, and begins the next caller's."""
        while self._waiting:
            # Nobody has two turns in a row while others wait.
            turn = self._waiting.next(lambda caller, _: caller != self._last_caller)
            turn = turn or self._waiting.next(lambda *_: True)
            assert turn is not None
            self._last_caller, future = turn
            if not future.done():
                future.set_result(None)
                return
        self._is_taken = False


class TextScheduler:
    """The turns of callers whose texts are to be read, and the memory for the texts."""

    def __init__(
        self, memory: FairMemory | None = None, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.memory = memory or FairMemory(_TEXTS_BYTES, bound=Bound.TEXTS)
        """Memory for texts that are being read."""
        self._clock = clock
        self._turns = Turns()

    async def read(
        self,
        caller: str,
        steps: Cooperative[Result],
        num_characters: int,
        held_bytes: int = 0,
        max_wait_s: float = MAX_WAIT_S,
    ) -> Result:
        """Reads texts: short ones at once, long ones in turns with other callers.

        Long texts wait for memory; ``held_bytes`` are held meanwhile, and counted nowhere else.
        """
        if num_characters <= _FEW_CHARACTERS:
            return run_now(steps)
        size = min(num_characters * _CHARACTER_BYTES, self.memory.max_per_caller)
        held = await self.memory.reserve(caller, size, held_bytes=held_bytes, max_wait_s=max_wait_s)
        results: list[Result] = []
        try:
            while not results:
                await self._turns.take(caller)
                try:
                    await _to_its_end(asyncio.to_thread(self._slice, steps, results))
                finally:
                    self._turns.give()
        finally:
            steps.close()
            held.release()
        return results[0]

    def _slice(self, steps: Cooperative[Result], results: list[Result]) -> None:
        end_s = self._clock() + SLICE_S
        try:
            while self._clock() < end_s:
                next(steps)
        except StopIteration as end:
            results.append(end.value)


async def _to_its_end(coroutine: Coroutine[None, None, None]) -> None:
    """Awaits a thread, also where the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(coroutine)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        # Nobody gets its error; asyncio would log what is not looked at.
        task.exception()
        raise


def run_now(steps: Cooperative[Result]) -> Result:
    """Does all steps without a pause."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: Result = end.value
        return result


async def run_slowly(steps: Cooperative[Result]) -> Result:
    """Does all steps; others get their turn after each."""
    try:
        while True:
            next(steps)
            await asyncio.sleep(0)
    except StopIteration as end:
        result: Result = end.value
        return result
