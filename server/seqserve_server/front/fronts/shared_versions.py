"""The versions of a server as one of its fronts has them: as the main process says.

The main process loads and unloads them and runs their engines. A front reads the tokenizer of each,
and has a socket to each engine process.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from seqserve_server.contract.stats import Ready
from seqserve_server.front.engine_client.engine import RefusalCache, ServingEngine
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.engine_client.link import EngineLink
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError, handlers_of
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Entry, Repository, Weights
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics


class VersionRecord(NamedTuple):
    """A version, as the main process describes it."""

    name: str
    version: int
    state: ModelState
    reason: str
    faults: tuple[str, ...]
    """Why each engine process is not trusted; empty texts for those that are."""

    @classmethod
    def of(cls, entry: Entry) -> VersionRecord:
        """Describes an entry of the main process."""
        faults = () if entry.model is None else entry.model.engine.faults
        return cls(entry.name, entry.version, entry.state, entry.reason, faults)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All versions at one time, as the main process describes them."""

    versions: tuple[VersionRecord, ...]
    default: str
    traffic: Mapping[str, Weights]

    @classmethod
    def of(cls, repository: Repository) -> Snapshot:
        """Describes the repository of the main process."""
        versions = tuple(map(VersionRecord.of, repository.entries))
        return cls(versions, repository.default, dict(repository.traffic))


class SharedVersions:
    """The versions in a front; the same for its services as a :class:`Rollout`."""

    def __init__(self, loader: Loader, metrics: Metrics, first: int, main: Callable[[], Peer]):
        """Knows no version before ``main`` tells; of idle engines ``first`` gets a request."""
        self.repository = Repository()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a version, or its engine, begins or stops taking calls."""
        self._loader = loader
        self._metrics = metrics
        self._first = first
        self._main = main
        self._links: dict[tuple[str, int], list[EngineLink]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Handler]:
        """Methods that the main process calls."""
        return handlers_of(self.read, self.connect, self.show, self.until_idle)

    async def read(self, name: str, version: int, capacities: list[Ready]) -> None:
        """Reads a version, whose engine processes have these capacities."""
        refusals, numbers = RefusalCache(), itertools.count(1)
        label = f"{name}/{version}"
        links = [EngineLink(label, refusals, numbers) for _ in capacities]
        for number, link in enumerate(links):
            link.on_lost = partial(self._lost, name, version, number)
        first = self._first % len(links)
        engine = EngineGroup([*links[first:], *links[:first]], refusals)
        engine.capacity = Ready.total(capacities)
        model = await asyncio.to_thread(self._loader.read, name, version, engine)
        entry = self.repository.entry(name, version)
        entry.model = self._loader.caching(model)
        self._links[name, version] = links
        self._metrics.show_model(name, version)

    async def connect(self, name: str, version: int, number: int, channel: socket.socket) -> None:
        """Takes the socket to an engine process of a version, which replaces the one before."""
        await self._links[name, version][number].connect(channel)

    def _lost(self, *link: str | int) -> None:
        # An engine that still runs has cut this front off, which had read nothing for a while.
        async def ask() -> None:
            with suppress(PeerGoneError):
                await self._main().call("reconnect", *link)

        task = asyncio.create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def show(self, snapshot: Snapshot) -> None:
        """Takes the states of all versions; those that are missing are gone."""
        repository = self.repository
        for record in snapshot.versions:
            entry = self.repository.entry(record.name, record.version)
            entry.state, entry.reason = record.state, record.reason
            if entry.is_ready and entry.model is None:
                entry.state = ModelState.LOADING
            links = self._links.get((record.name, record.version), [])
            for link, fault in zip(links, record.faults, strict=False):
                link.fault = fault
        known = {(record.name, record.version) for record in snapshot.versions}
        for entry in repository.entries:
            if (entry.name, entry.version) not in known:
                repository.remove(entry)
        repository.default = snapshot.default
        for name, weights in snapshot.traffic.items():
            if name in repository.names() and weights != repository.traffic.get(name):
                repository.set_traffic(name, weights)
        self.on_change()

    async def until_idle(self, name: str, version: int, timeout_s: float) -> bool:
        """Waits for the calls of a version that takes no new ones, and forgets it."""
        entry = self.repository.entry(name, version)
        model = entry.model
        if model is None:
            return True
        finished = await model.calls.wait_idle(timeout_s)
        await model.engine.stop()
        if model.answers is not None:
            model.answers.close()
        entry.model = None
        del self._links[name, version]
        self._metrics.forget_model_later(name, version)
        return finished

    async def start(self) -> None:
        """Does nothing: the main process starts engines."""

    def close(self) -> None:
        """Refuses new calls."""
        self.repository.is_closed = True
        for engine in self._engines():
            engine.close()

    async def stop(self) -> None:
        """Closes the sockets to the engines; calls in progress fail."""
        self.close()
        await asyncio.gather(*(engine.stop() for engine in self._engines()))

    async def load(self, name: str, version: int = 0) -> Entry:
        """Has the main process load a version."""
        return self._shown(await self._main().call("load", name, version))

    async def unload(self, name: str, version: int) -> Entry:
        """Has the main process unload a version."""
        return self._shown(await self._main().call("unload", name, version))

    async def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Has the main process divide the calls that name no version."""
        records = await self._main().call("set_traffic", name, dict(weights))
        return [self._shown(record) for record in records]

    def _shown(self, record: VersionRecord) -> Entry:
        for entry in self.repository.versions(record.name):
            if entry.version == record.version:
                return entry
        # It is gone.
        name, version, state, reason, _ = record
        return Entry(name=name, version=version, state=state, reason=reason)

    def _engines(self) -> list[ServingEngine]:
        return [model.engine for model in self.repository.models()]


Versions: TypeAlias = Rollout | SharedVersions
"""The versions of a server, for its services."""
