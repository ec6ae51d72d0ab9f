"""The versions of a server as one of its fronts has them: as the main process says.

The main process loads and unloads them and runs their engines. A front reads the tokenizer of each,
and asks the main process for a socket to each engine process.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.contract.stats import Ready
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.engine_client.link import EngineLink
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError, handlers_of
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Repository, Weights
from seqserve_server.front.models.rollout import Rollout
from seqserve_server.front.telemetry.metrics import Metrics


class EngineRecord(NamedTuple):
    """An engine process of a version."""

    capacity: Ready
    pid: int
    """Its id; 0 while it takes no requests."""
    fault: str
    """Why it is not trusted; empty if it is."""


class VersionRecord(NamedTuple):
    """A version, as the main process describes it."""

    name: str
    version: int
    state: ModelState
    reason: str
    engines: tuple[EngineRecord, ...]

    @classmethod
    def of(cls, entry: Entry, engines: Sequence[EngineLink] = ()) -> VersionRecord:
        """Describes an entry of the main process, and its engines."""
        records = [
            EngineRecord(each.capacity, sum(status.pids) if status.is_up else 0, status.last_error)
            for each, status in ((each, each.status) for each in engines)
        ]
        return cls(entry.name, entry.version, entry.state, entry.reason, tuple(records))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All versions at one time, as the main process describes them."""

    versions: tuple[VersionRecord, ...]
    default: str
    traffic: Mapping[str, Weights]


class SharedVersions:
    """The versions in a front; the same for its services as a :class:`Rollout`."""

    def __init__(
        self, loader: Loader, metrics: Metrics, first: int, main: Peer, door: socket.socket
    ) -> None:
        """Knows no version before ``main`` tells; of idle engines ``first`` gets a request.

        Sockets come through ``door``.
        """
        self.repository = Repository()
        self.on_change: Callable[[], None] = lambda: None
        """Called when a version, or its engine, begins or stops taking calls."""
        self._loader = loader
        self._metrics = metrics
        self._first = first
        self._main, self._door = main, door
        self._links: dict[tuple[str, int], list[EngineLink]] = {}
        # The process that each link has a socket to.
        self._pids: dict[EngineLink, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def handlers(self) -> dict[str, Handler]:
        """Methods that the main process calls."""
        return handlers_of(self.show, self.until_idle)

    async def show(self, snapshot: Snapshot) -> None:
        """Takes all versions as they are now; those that are missing are gone.

        Raises the error of a version that cannot be read, once it has all others.
        """
        repository, errors = self.repository, []
        for record in snapshot.versions:
            try:
                await self._take(record)
            except SeqserveError as error:
                errors.append(error)
        for record in snapshot.versions:
            entry = repository.entry(record.name, record.version)
            entry.state, entry.reason = record.state, record.reason
            if entry.is_ready and entry.model is None:
                entry.state = ModelState.LOADING
        known = {(record.name, record.version) for record in snapshot.versions}
        for entry in repository.entries:
            if (entry.name, entry.version) not in known:
                repository.remove(entry)
        repository.default = snapshot.default
        for name, weights in snapshot.traffic.items():
            if name in repository.names() and weights != repository.traffic.get(name):
                repository.set_traffic(name, weights)
        self.on_change()
        if errors:
            raise errors[0]

    async def _take(self, record: VersionRecord) -> None:
        """Reads a version that is not known, and gets sockets to new engine processes."""
        key = record.name, record.version
        if key not in self._links and record.engines and record.state is not ModelState.DRAINING:
            self._links[key] = await self._read(*key, [each.capacity for each in record.engines])
        links = self._links.get(key, [])
        for number, (link, engine) in enumerate(zip(links, record.engines, strict=False)):
            link.fault = engine.fault
            if engine.pid and self._pids.get(link) != engine.pid:
                # If its process has just ended, there will be another one to hear of.
                with suppress(SeqserveError):
                    await self._main.call("connect", *key, number)
                    _, [descriptor], *_ = socket.recv_fds(self._door, 1, 1)
                    await link.connect(socket.socket(fileno=descriptor))
                    self._pids[link] = engine.pid

    async def _read(self, name: str, version: int, capacities: list[Ready]) -> list[EngineLink]:
        links = [EngineLink(f"{name}/{version}") for _ in capacities]
        for link in links:
            link.on_lost = partial(self._lost, link)
        first = self._first % len(links)
        engine = EngineGroup([*links[first:], *links[:first]])
        engine.capacity = Ready.total(capacities)
        model = await asyncio.to_thread(self._loader.read, name, version, engine)
        self.repository.entry(name, version).model = self._loader.caching(model)
        self._metrics.show_model(name, version)
        return links

    def _lost(self, link: EngineLink) -> None:
        # An engine that still runs has cut this front off, which had read nothing for a while.
        async def ask() -> None:
            with suppress(PeerGoneError):
                await self._main.call("tell")

        self._pids.pop(link, None)
        task = asyncio.create_task(ask())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
        for link in self._links.pop((name, version)):
            self._pids.pop(link, None)
        self._metrics.forget_model_later(name, version)
        return finished

    async def start(self) -> None:
        """Does nothing: the main process starts engines."""

    def close(self) -> None:
        """Refuses new calls."""
        self.repository.is_closed = True
        for model in self.repository.models():
            model.engine.close()

    async def stop(self) -> None:
        """Closes the sockets to the engines; calls in progress fail."""
        self.close()
        await asyncio.gather(*(model.engine.stop() for model in self.repository.models()))

    async def load(self, name: str, version: int = 0) -> Entry:
        """Has the main process load a version."""
        return self._shown(await self._main.call("load", name, version))

    async def unload(self, name: str, version: int) -> Entry:
        """Has the main process unload a version."""
        return self._shown(await self._main.call("unload", name, version))

    async def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Has the main process divide the calls that name no version."""
        records = await self._main.call("set_traffic", name, dict(weights))
        return [self._shown(record) for record in records]

    def _shown(self, record: VersionRecord) -> Entry:
        for entry in self.repository.versions(record.name):
            if entry.version == record.version:
                return entry
        # It is gone.
        name, version, state, reason, _ = record
        return Entry(name=name, version=version, state=state, reason=reason)


Versions: TypeAlias = Rollout | SharedVersions
"""The versions of a server, for its services."""
