"""All fronts of a server, in its main process: the same to ``seqserve serve`` as one server.

The main process decides which versions are loaded, runs their engines and answers scrapes. It takes
no calls: each front listens at the same port, and the system spreads connections over them
(``SO_REUSEPORT``, socket(7)).
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from seqserve.address import held_port
from seqserve.errors import OptionError, SeqserveError
from seqserve_server.contract.errors import StartupError
from seqserve_server.front.config import CAN_SHARE_PORTS, ServeOptions
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.fronts.front import Front
from seqserve_server.front.fronts.peer import PeerGoneError, handlers_of
from seqserve_server.front.fronts.shared_versions import Snapshot, VersionRecord
from seqserve_server.front.models.lifecycle import Entry
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics

_SCRAPE_TIMEOUT_S = 1.0


class Fronts:
    """The front processes of one server; used in the event loop, except where it blocks."""

    def __init__(self, options: ServeOptions, rollout: Rollout, metrics: Metrics) -> None:
        """Launches the processes at once, so that they start while models load."""
        if not CAN_SHARE_PORTS:
            raise OptionError("--front-processes: this system has one; only Linux shares a port")
        # Nothing listens at it, but it keeps the port for fronts that are started again.
        try:
            self._reserved = held_port(options.host, options.port)
        except (OSError, UnicodeError) as error:
            raise StartupError(
                f"--port: cannot listen on {options.host} port {options.port}: {error}; --port 0"
                " takes any free one"
            ) from None
        port = self._reserved.getsockname()[1]
        own = part_of(options, port)
        self._rollout = rollout
        handlers = handlers_of(self._load, self._unload, self._set_traffic)
        parts = self._snapshot, self._further_socket, handlers, self._keep_counts
        self._fronts = [Front(number, own, *parts) for number in range(options.front_count())]
        self._starting: set[Entry] = set()
        self._ended: list[Metric] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        rollout.on_change = self._tell
        rollout.deployment.on_started = self._started
        rollout.deployment.until_idle = self._until_idle
        metrics.show_fronts(
            self._families,
            lambda: [([str(each.number)], each.restarts, each.pids) for each in self._fronts],
        )

    def terminate(self) -> None:
        """Ends all processes when no event loop runs; blocks."""
        for front in self._fronts:
            front.terminate()
        self._reserved.close()

    @property
    def port(self) -> int:
        """The port of the server."""
        return self._fronts[0].port

    @property
    def is_ready(self) -> bool:
        """Whether a front takes calls and has an engine for them."""
        repository = self._rollout.repository
        is_serving = any(front.is_serving for front in self._fronts)
        return is_serving and repository.is_ready and not repository.is_closed

    async def start(self) -> None:
        """Starts the engines, then has all fronts answer calls."""
        self._loop = asyncio.get_running_loop()
        await self._rollout.start()
        # One after the other: each takes the port for itself for a moment.
        for front in self._fronts:
            await front.start()

    async def drain(self, timeout_s: float) -> bool:
        """Refuses new calls, finishes the others and stops; tells whether all finished in time."""
        self._rollout.close()
        finished = await asyncio.gather(*(front.drain(timeout_s) for front in self._fronts))
        await self._rollout.stop()
        self._reserved.close()
        return all(finished)

    def _snapshot(self) -> Snapshot:
        repository = self._rollout.repository
        records = [VersionRecord.of(entry, self._engines(entry)) for entry in repository.entries]
        return Snapshot(tuple(records), repository.default, dict(repository.traffic))

    def _engines(self, entry: Entry) -> Sequence[RemoteEngine]:
        """Returns the engines of a version that takes calls, or soon will."""
        takes_calls = entry.model is not None or entry in self._starting
        return self._rollout.deployment.engines[entry].engines if takes_calls else ()

    def _further_socket(self, name: str, version: int, number: int) -> socket.socket:
        return self._engines(self._rollout.repository.entry(name, version))[number].further_socket()

    def _tell(self) -> None:
        task = asyncio.create_task(self._tell_all())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _tell_all(self) -> None:
        async def tell(front: Front) -> None:
            try:
                await front.tell()
            except PeerGoneError:
                pass
            except SeqserveError:
                # One that starts reports it itself.
                if front.is_serving:
                    raise

        await asyncio.gather(*map(tell, self._fronts))

    async def _started(self, entry: Entry) -> None:
        self._starting.add(entry)
        try:
            await self._tell_all()
        except BaseException:
            self._starting.remove(entry)
            # Fronts that have read it must read it again next time.
            await self._until_idle(entry, 0.0)
            raise
        self._starting.remove(entry)

    async def _until_idle(self, entry: Entry, timeout_s: float) -> bool:
        fronts, version = self._fronts, (entry.name, entry.version)
        return all(await asyncio.gather(*(each.until_idle(*version, timeout_s) for each in fronts)))

    async def _load(self, name: str, version: int) -> VersionRecord:
        return await self._told(await self._rollout.load(name, version))

    async def _unload(self, name: str, version: int) -> VersionRecord:
        return await self._told(await self._rollout.unload(name, version))

    async def _set_traffic(self, name: str, weights: dict[int, int]) -> list[VersionRecord]:
        entries = await self._rollout.set_traffic(name, weights)
        return [await self._told(entry) for entry in entries]

    async def _told(self, entry: Entry) -> VersionRecord:
        # The one that asks is told first, so that its answer is of the new state.
        await self._tell_all()
        return VersionRecord.of(entry)

    def _keep_counts(self, front: Front) -> None:
        self._ended = added([self._ended, lasting(front.counted)])
        front.counted = []

    def _families(self) -> list[Metric]:
        # Called by a thread of the scrapes.
        assert self._loop is not None
        asking = asyncio.run_coroutine_threadsafe(self._counted(), self._loop)
        try:
            fronts = asking.result(2 * _SCRAPE_TIMEOUT_S)
        except TimeoutError:
            fronts = [front.counted for front in self._fronts]
        return added([self._ended, *fronts])

    async def _counted(self) -> list[list[Metric]]:
        async def count(front: Front) -> list[Metric]:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SCRAPE_TIMEOUT_S):
                    return await front.count()
            return front.counted

        return await asyncio.gather(*map(count, self._fronts))


def part_of(options: ServeOptions, port: int) -> ServeOptions:
    """Returns the options of one front: its part of what bounds the server."""
    count = options.front_count()
    return replace(
        options,
        port=port,
        max_answer_mb=max(1, options.max_answer_mb // count),
        cache_mb=-(-options.cache_mb // count),
        max_connections=options.max_connections and -(-options.max_connections // count),
    )


# Of these the worst front counts; all other values are sums.
_SMALLEST = (
    "seqserve_reload_successful",
    "seqserve_reload_success_timestamp_seconds",
    "seqserve_certificate_expiry_timestamp_seconds",
)
_NEVER_FALL = ("counter", "histogram")


def added(fronts: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Adds the values of equal labels; of exemplars the newest stays."""
    totals: dict[str, Metric] = {}
    samples: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], Sample]] = {}
    for families in fronts:
        for family in families:
            if family.name not in totals:
                totals[family.name] = Metric(family.name, family.documentation, family.type)
            combined = samples.setdefault(family.name, {})
            combine: Callable[[float, float], float] = (
                min if family.name in _SMALLEST else float.__add__
            )
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                before = combined.get(key)
                combined[key] = _combined(before, sample, combine) if before else sample
    for name, total in totals.items():
        total.samples = list(samples[name].values())
    return list(totals.values())


def _combined(a: Sample, b: Sample, combine: Callable[[float, float], float]) -> Sample:
    exemplars = [each.exemplar for each in (a, b) if each.exemplar]
    newest = max(exemplars, key=lambda each: each.timestamp or 0.0, default=None)
    return a._replace(value=combine(float(a.value), float(b.value)), exemplar=newest)


def lasting(families: Iterable[Metric]) -> list[Metric]:
    """Returns the families that must not fall when a front has ended."""
    return [family for family in families if family.type in _NEVER_FALL]
