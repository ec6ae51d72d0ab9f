"""Loads and unloads versions as the repository's folder and administrators demand.

``folders`` reads the folder, ``lifecycle`` decides which versions to load and to drain, and
``deployment`` does it, or ``on_demand`` where calls load them. The versions in service stay until
newer ones are ready.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from seqserve.errors import OptionError, SeqserveError
from seqserve_server.artifact.repository import VERSION
from seqserve_server.contract import errors
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.models.deployment import Deployment
from seqserve_server.front.models.folders import Scanner
from seqserve_server.front.models.lifecycle import Control, Entry, ModelState, to_drain, to_load
from seqserve_server.front.models.loader import Loader, loader_of
from seqserve_server.front.models.on_demand import OnDemand
from seqserve_server.front.models.repository import Repository, Weights, weights_error
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs

_SHARE = re.compile(rf"({VERSION})=([0-9]{{1,7}})")
_log = logging.getLogger(__name__)


def parse_traffic(texts: Sequence[str]) -> dict[str, dict[int, int]]:
    """Parses ``--traffic``, ``NAME:VERSION=WEIGHT,...``, into the weights of each model."""
    traffic: dict[str, dict[int, int]] = {}
    for text in texts:
        name, colon, shares = text.rpartition(":")
        parts = [_SHARE.fullmatch(part) for part in shares.split(",")]
        weights = {int(part[1]): int(part[2]) for part in parts if part}
        if not (name and colon and len(weights) == len(parts)):
            raise OptionError(
                f"--traffic: {text!r} is not of the form NAME:VERSION=WEIGHT,VERSION=WEIGHT,"
                " as en-de:4=90,5=10"
            )
        if name in traffic:
            raise OptionError(f"--traffic: {name} is given twice; put its versions together")
        if error := weights_error(weights):
            raise OptionError(f"--traffic: {text!r}: {error}")
        traffic[name] = weights
    return traffic


class Rollout:
    """Controls all versions of one repository; used in the event loop, except where it blocks."""

    def __init__(
        self,
        repository: Repository,
        loader: Loader,
        metrics: Metrics,
        *,
        keep: int = 0,
        interval_s: float = 0.0,
        drain_timeout_s: float = 30.0,
        max_loaded_bytes: int = 0,
    ) -> None:
        """Loads nothing before :meth:`open`.

        With ``max_loaded_bytes`` versions are loaded by their first calls, in so much memory.
        """
        self.repository = repository
        self.on_change: Callable[[], None] = lambda: None
        """Called when a version, or its engine, begins or stops taking calls."""
        self._scanner = Scanner(loader.repository, repository)
        self.deployment = Deployment(loader, metrics, drain_timeout_s)
        """Object that loads and unloads versions."""
        self.deployment.on_change = lambda: self.on_change()
        self.deployment.on_settled = self._apply
        self._on_demand: OnDemand | None = None
        if max_loaded_bytes:
            self._on_demand = OnDemand(repository, self.deployment, max_loaded_bytes)
        self._keep = keep
        self._interval_s = interval_s
        self._watching: asyncio.Task[None] | None = None
        metrics.read_versions = self._states

    def open(self, default: str = "", traffic: dict[str, dict[int, int]] | None = None) -> None:
        """Loads the versions in the folder, in parallel, before the event loop runs; blocks.

        If a version fails, an older one may take its place. Where calls load versions, only their
        manifests are read.
        """
        self._scanner.open()
        default, named_by = (default, "--default-model") if default else self._scanner.default()
        names = self.repository.names()
        # Before the models are loaded, which takes longer.
        if default and default not in names:
            raise OptionError(
                f"{named_by}: {default!r} is not in the repository; available: {', '.join(names)}"
            )
        try:
            for name, weights in (traffic or {}).items():
                self.repository.set_traffic(name, weights)
        except SeqserveError as error:
            raise OptionError(f"--traffic: {error}") from None
        if self._on_demand is not None:
            self._on_demand.take(self._on_demand.read())
        try:
            while due := self._due_to_load():
                self.deployment.load_all(due)
            self.repository.choose_default(default, named_by)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Ends all engine processes when no event loop runs; blocks."""
        for engine in self.deployment.engines.values():
            engine.terminate()

    async def start(self) -> None:
        """Starts the engines, and scans the folder from now on."""
        for entry in self.repository.entries:
            if entry.model is not None:
                await self.deployment.start(entry)
        if self._interval_s:
            self._watching = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Refuses new calls and changes no version any more."""
        if self.repository.is_closed:
            return
        if self._watching is not None:
            self._watching.cancel()
        # A call that has its version may still submit to it, as a batch does source by source.
        self.repository.is_closed = True
        if self._on_demand is not None:
            self._on_demand.close()
        self.deployment.close()

    async def stop(self) -> None:
        """Ends all engine processes; calls in progress fail."""
        self.close()
        await asyncio.gather(*(engine.stop() for engine in self.deployment.engines.values()))
        await self.deployment.stop()

    async def load(self, name: str, version: int = 0) -> Entry:
        """Loads a version, whatever the watch would do, and waits until it is ready.

        An empty name is the default; version 0 is the highest one in the folder.
        """
        self._check_open()
        await self._scanner.find(name or self.repository.default)
        entry = self.repository.find(name, version)
        if not version:
            entry = self.repository.versions(entry.name)[-1]
        if entry.state is ModelState.DRAINING:
            raise errors.ModelUnavailable(f"{entry.label} is being unloaded; try again when it is")
        entry.control = Control.LOADED
        if entry.is_idle:
            if self._on_demand is not None:
                await self._on_demand.load(entry)
            else:
                self.deployment.begin_load(entry)
        await self.deployment.until_settled(entry)
        if not entry.is_ready:
            self._check_open()
            if entry.state is ModelState.RESTARTING:
                raise errors.ModelUnavailable(f"{entry.label} is restarting: {entry.reason}")
            reason = entry.reason or "it was unloaded meanwhile"
            raise errors.ModelNotLoaded(f"{entry.label} could not be loaded: {reason}")
        return entry

    async def unload(self, name: str, version: int) -> Entry:
        """Takes a version out of service, and waits until its process has ended."""
        self._check_open()
        if not version:
            raise errors.InvalidRequest("version", "is missing; name the version to unload")
        entry = self.repository.find(name, version)
        entry.control = Control.UNLOADED
        if entry.state is ModelState.FAILED:
            entry.move(ModelState.AVAILABLE)
        self._apply()
        await self.deployment.until_settled(entry)
        return entry

    async def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Divides the calls that name no version; a version with a weight stays loaded."""
        self._check_open()
        entries = self.repository.set_traffic(name, weights)
        logs.event("traffic", {"model": entries[0].name, "weights": dict(weights)})
        self._apply()
        return entries

    async def scan(self) -> None:
        """Scans the folder once, and begins the loads and unloads that follow."""
        if await self._scanner.scan():
            if self._on_demand is not None:
                self._on_demand.take(await asyncio.to_thread(self._on_demand.read))
            self._apply()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.scan()
            except Exception:
                _log.exception("the model repository cannot be scanned")

    def _check_open(self) -> None:
        if self.repository.is_closed:
            raise errors.Draining

    def _apply(self) -> None:
        if self.repository.is_closed:
            return
        for entry in self._due_to_load():
            if self._on_demand is not None:
                self._on_demand.begin(entry)
            else:
                self.deployment.begin_load(entry)
        for name in self.repository.names():
            versions = self.repository.versions(name)
            for entry in to_drain(versions, self._keep, self.repository.weighted(name)):
                self.deployment.begin_unload(entry)
            for entry in versions:
                if entry.is_removable:
                    self.repository.remove(entry)
        self.on_change()

    def _due_to_load(self) -> list[Entry]:
        due = [
            entry
            for name in self.repository.names()
            for entry in to_load(
                self.repository.versions(name), self._keep, self.repository.weighted(name)
            )
        ]
        return due if self._on_demand is None else self._on_demand.mark(due)

    def _states(self) -> list[tuple[str, int, str]]:
        return [
            (entry.name, entry.version, "on_call" if entry.waits_for_call else entry.state.value)
            for entry in self.repository.entries
        ]


def rollout_of(options: ServeOptions, metrics: Metrics) -> Rollout:
    """Makes the rollout of a server; loads nothing yet."""
    return Rollout(
        Repository(),
        loader_of(options, metrics.cache_counts),
        metrics,
        keep=options.keep_versions,
        interval_s=options.watch_interval_s,
        drain_timeout_s=options.drain_timeout_s,
        max_loaded_bytes=options.max_loaded_mb * 1_000_000,
    )
