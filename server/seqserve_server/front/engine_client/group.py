"""The engine processes of one version: requests go to the process with the fewest in flight.

Workers of one process share Python's interpreter lock. Small models spend a tenth of a step in
Python, so from some number of workers on, only more processes make them faster. If a process ends,
its own calls fail, and the other processes go on.

Call every method from the loop, except :meth:`EngineGroup.load`, :meth:`EngineGroup.request_stats`
and :attr:`EngineGroup.status`.
"""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress

from seqserve_server.contract.request import Spec
from seqserve_server.contract.stats import Ready, StatsReply
from seqserve_server.front.engine_client.client import EngineProcess, RemoteEngine
from seqserve_server.front.engine_client.engine import EngineStatus, Receive, RefusalCache
from seqserve_server.front.engine_client.link import EngineLink

STATS_TIMEOUT_S = 2.0
"""Longest wait for new statistics; after it the last report counts as the newest."""
_POLL_S = 0.01


class EngineGroup:
    """Engines of the same model; to their callers they are one engine.

    Another process starts and ends theirs, unless this is a :class:`LaunchedGroup`.
    """

    def __init__(self, engines: Sequence[EngineLink], refusals: RefusalCache | None = None) -> None:
        """Takes engines, which share refusals and ids; among equals the first gets a request."""
        self._engines = engines
        self.refusals = refusals or RefusalCache()
        """Recent refusals. The engine that refused had the fewest requests."""
        # So that an id names one request of the group.
        request_ids = itertools.count(1)
        for engine in engines:
            engine.refusals, engine.request_ids = self.refusals, request_ids
        self.capacity = Ready(0, 0, 0)
        """Capacity of all processes together, once they are loaded."""

    def __len__(self) -> int:
        return len(self._engines)

    @property
    def pending(self) -> int:
        """Requests that have not ended, over all processes."""
        return sum(engine.pending for engine in self._engines)

    @property
    def status(self) -> EngineStatus:
        """The state of all processes together; may be read from any thread."""
        return EngineStatus.total([engine.status for engine in self._engines])

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Sends a request to the process with the fewest; as :meth:`AnsweringEngine.submit`."""
        return min(self._engines, key=_precedence).submit(spec, receive)

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""
        for engine in self._engines:
            engine.cancel(request_id, is_late=is_late)

    def close(self) -> None:
        """Refuses new requests from now on."""
        for engine in self._engines:
            engine.close()

    async def stop(self) -> None:
        """Ends the hosts, all at the same time; unfinished requests fail."""
        await asyncio.gather(*(engine.stop() for engine in self._engines))

    @property
    def last_reply(self) -> StatsReply:
        """The newest statistics of all engines together."""
        return StatsReply.total([engine.last_reply for engine in self._engines])

    def request_stats(self) -> list[Future[StatsReply]]:
        """Requests new statistics from each engine; from any thread."""
        return [engine.request_stats() for engine in self._engines]

    async def newest_stats(self, *, when_idle: bool = False) -> StatsReply:
        """Requests new statistics, as :meth:`ServingEngine.newest_stats`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(STATS_TIMEOUT_S):
                await self._asked_all()
                while when_idle and (self.last_reply.slots_in_use or self.last_reply.queue_depth):
                    await asyncio.sleep(_POLL_S)
                    await self._asked_all()
                if when_idle:
                    # Rows leave a moment before the answers of their last step are counted.
                    await self._asked_all()
        return self.last_reply

    async def _asked_all(self) -> None:
        await asyncio.gather(*map(asyncio.wrap_future, self.request_stats()))


class LaunchedGroup(EngineGroup):
    """Engines whose processes this one starts, and starts again when they fail."""

    def __init__(
        self,
        launches: Sequence[Callable[[], EngineProcess]],
        stall_s: float = 0.0,
        *,
        label: str,
        refusals: RefusalCache | None = None,
    ) -> None:
        """Launches all processes at once, so that they load in parallel."""
        self.engines: list[RemoteEngine] = []
        """The engines, one a process."""
        try:
            for launch in launches:
                self.engines.append(RemoteEngine(launch, stall_s, label=label))
        except BaseException:
            self.terminate()
            raise
        super().__init__(self.engines, refusals)

    def load(self) -> None:
        """Waits until every host is ready; blocks."""
        for engine in self.engines:
            engine.load()
        self.capacity = Ready.total([engine.capacity for engine in self.engines])

    def terminate(self) -> None:
        """Ends the hosts; blocks."""
        for engine in self.engines:
            engine.terminate()

    def watch(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` when :attr:`status` may have changed."""
        for engine in self.engines:
            engine.watch(on_change)

    async def start(self) -> None:
        """Starts to exchange messages with hosts that are ready."""
        for engine in self.engines:
            await engine.start()


def _precedence(engine: EngineLink) -> tuple[bool, bool, int]:
    # Engines that serve come first, then trusted ones, then idle ones.
    return not engine.is_up, not engine.is_ready, engine.work
