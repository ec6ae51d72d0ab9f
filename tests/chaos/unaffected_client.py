"""A client that calls during a fault and must not be affected, and the accounts of all calls."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections import Counter
from typing import Any

from tests.support.process import ONCE, PATIENCE_S, ServerProcess, until

from seqserve import AsyncClient

SOURCE = "Our scorer paints the garden."
_LENGTH = 40
_PAUSE_S = 0.02


class UnaffectedClient:
    """Repeats one request and checks that the answer and its scores stay the same."""

    def __init__(self, target: str, **options: Any) -> None:
        self._client = AsyncClient(target, retry=ONCE, timeout_s=PATIENCE_S)
        lengths = {"min_decoding_length": _LENGTH, "max_decoding_length": _LENGTH}
        self._options = lengths | options
        self._is_over = asyncio.Event()
        self.durations_s: list[float] = []
        """Durations of its calls, in order, without the first."""

    async def __aenter__(self) -> UnaffectedClient:
        self._expected = await self._client.generate(SOURCE, **self._options)
        self._asking = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *given: object) -> None:
        self._is_over.set()
        try:
            await self._asking
        finally:
            await self._client.close()

    @property
    def answered(self) -> int:
        """Number of calls, all of which succeeded."""
        return 1 + len(self.durations_s)

    async def usual_s(self, calls: int) -> float:
        """Waits for this number of further calls and returns their median duration."""
        begin = len(self.durations_s)
        while len(self.durations_s) < begin + calls:
            assert not self._asking.done() or self._asking.result()
            await asyncio.sleep(_PAUSE_S)
        return statistics.median(self.durations_s[begin:])

    async def _ask(self) -> None:
        while not self._is_over.is_set():
            began_s = time.perf_counter()
            if len(self.durations_s) % 2:
                pieces = [piece async for piece in self._client.stream(SOURCE, **self._options)]
                result = pieces[-1].result
                assert result is not None
                assert "".join(piece.text for piece in pieces) == result.text
            else:
                result = await self._client.generate(SOURCE, **self._options)
            assert result.hypotheses == self._expected.hypotheses
            self.durations_s.append(time.perf_counter() - began_s)
            await asyncio.sleep(_PAUSE_S)


class CallAccounts:
    """Calls of a server that have ended since this was made, by status."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._before = server.calls_by_code()

    def ended(self) -> Counter[str]:
        return self._server.calls_by_code() - self._before

    def until(self, **expected: int) -> None:
        """Waits until exactly these calls have ended; a call is counted just after its answer."""
        wanted = Counter({code: count for code, count in expected.items() if count})
        with contextlib.suppress(AssertionError):
            until(lambda: self.ended() == wanted)
        assert self.ended() == wanted
