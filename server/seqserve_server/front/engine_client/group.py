"""The engine processes of one version: requests go to the one with the fewest under way.

Workers of one process share Python's interpreter lock. Small models spend a tenth of a step in
Python, so that from some workers on more of them are no faster; more processes are. A process that
ends takes its own calls with it, and the others go on.

Call every method from the loop, except :meth:`EngineGroup.load`, :meth:`EngineGroup.ask` and
:attr:`EngineGroup.pids`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from seqserve_server.contract.messages import StatsReply
from seqserve_server.contract.request import Spec
from seqserve_server.front.engine_client.circuit_breaker import CircuitBreaker
from seqserve_server.front.engine_client.client import HostProcess, Receive, RemoteEngine
from seqserve_server.front.engine_client.refusals import RefusalCache


class EngineGroup:
    """Engines of the same model; to their callers they are one engine."""

    def __init__(
        self,
        launches: Sequence[Callable[[], HostProcess]],
        stall_s: float = 0.0,
        *,
        label: str,
        new_breaker: Callable[[], CircuitBreaker] = CircuitBreaker,
        refusals: RefusalCache | None = None,
    ) -> None:
        """Launches all processes at once, so that they load in parallel.

        Args:
            launches: Start a host each; called again when the host has died.
            stall_s: Time after which a host is killed if one of its threads hangs; 0 for never.
            label: Model and version, for the log: ``en-de/1``.
            new_breaker: Makes what decides about the restarts of one process.
            refusals: Keeps what the engines refuse.
        """
        self.refusals = refusals or RefusalCache()
        """Recent refusals. The engine that refused had the fewest requests."""
        # Shared, so that an id names one request of the group.
        request_ids = itertools.count(1)
        self._engines: list[RemoteEngine] = []
        try:
            for launch in launches:
                engine = RemoteEngine(
                    launch,
                    stall_s,
                    label=label,
                    breaker=new_breaker(),
                    refusals=self.refusals,
                    request_ids=request_ids,
                )
                self._engines.append(engine)
        except BaseException:
            self.discard()
            raise

    def __len__(self) -> int:
        """Counts the processes, those included that are being restarted."""
        return len(self._engines)

    def load(self) -> None:
        """Waits until every host is ready; blocks.

        Raises:
            SeqserveError: A host could not load the model.
        """
        for engine in self._engines:
            engine.load()

    def discard(self) -> None:
        """Ends the hosts; blocks."""
        for engine in self._engines:
            engine.discard()

    @property
    def slots(self) -> int:
        """Rows that may run at once, over all processes."""
        return sum(engine.slots for engine in self._engines)

    @property
    def max_rows(self) -> int:
        """Maximum number of slots of one request."""
        return min(engine.max_rows for engine in self._engines)

    @property
    def cache_bytes(self) -> int:
        """Bytes of all keys and values, over all processes."""
        return sum(engine.cache_bytes for engine in self._engines)

    @property
    def pending(self) -> int:
        """Requests that have not ended, over all processes."""
        return sum(engine.pending for engine in self._engines)

    @property
    def is_up(self) -> bool:
        """Whether requests can be taken."""
        return any(engine.is_up for engine in self._engines)

    @property
    def is_ready(self) -> bool:
        """Whether requests can be taken by an engine that has not failed again and again."""
        return any(engine.is_ready for engine in self._engines)

    @property
    def trouble(self) -> str:
        """Why no engine is ready; empty if one is."""
        return "" if self.is_ready else self._engines[0].trouble

    @property
    def restarts(self) -> int:
        """Starts after the first one of each process, whether or not they succeeded."""
        return sum(engine.restarts for engine in self._engines)

    @property
    def pids(self) -> list[int]:
        """Ids of the processes that there are now."""
        return [engine.pid for engine in self._engines if engine.pid is not None]

    def watch(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` when ``is_up``, ``is_ready`` or ``trouble`` may have changed."""
        for engine in self._engines:
            engine.watch(on_change)

    async def start(self) -> None:
        """Starts to exchange messages with hosts that are ready."""
        for engine in self._engines:
            await engine.start()

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Sends a request to the engine with the fewest; ``receive`` gets its events in the loop.

        Returns:
            The request id, for :meth:`cancel`.

        Raises:
            Draining: No new requests are taken.
            ModelUnavailable: Every process has ended and is being restarted.
        """
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

    def ask(self) -> Future[StatsReply]:
        """Asks the engines for their statistics; from any thread."""
        asked: Future[StatsReply] = Future()
        left = itertools.count(len(self._engines) - 1, -1)

        def answered(_: Future[StatsReply]) -> None:
            # The one who asked may have given up.
            if next(left) == 0 and asked.set_running_or_notify_cancel():
                asked.set_result(self.last_reply)

        for engine in self._engines:
            engine.ask().add_done_callback(answered)
        return asked


def _precedence(engine: RemoteEngine) -> tuple[bool, bool, int]:
    """Orders engines: those that serve first, then those that are trusted, then the idle ones."""
    return not engine.is_up, not engine.is_ready, engine.pending
