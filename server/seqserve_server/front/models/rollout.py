"""Loads and unloads versions as the repository's folder and administrators demand.

``folders`` reads the folder, ``lifecycle`` decides which versions to load and to drain, and
``deployment`` does it. The versions in service stay until newer ones are ready.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from seqserve.errors import OptionError, SeqserveError
from seqserve_server.contract import errors
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.engine import ServingEngine
from seqserve_server.front.engine_client.process import EngineProcess
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.deployment import Deployment, Loader
from seqserve_server.front.models.folders import Scanner, standard_repository
from seqserve_server.front.models.lifecycle import VERSION, Control, ModelState, to_drain, to_load
from seqserve_server.front.models.repository import Entry, Repository, Weights, weights_error
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
    ) -> None:
        """Loads nothing before :meth:`open`.

        ``keep`` is --keep-versions, ``interval_s`` --watch-interval-s.
        """
        self.repository = repository
        self.on_change: Callable[[], None] = lambda: None
        """Called when a version, or its engine, begins or stops taking calls."""
        self._scanner = Scanner(loader.repository, repository)
        self.deployment = Deployment(loader, metrics, drain_timeout_s)
        """What loads and unloads."""
        self.deployment.on_change = lambda: self.on_change()
        self._keep = keep
        self._interval_s = interval_s
        self._tasks: dict[Entry, asyncio.Task[None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        metrics.show_versions(self._states)

    def open(self, default: str = "", traffic: dict[str, dict[int, int]] | None = None) -> None:
        """Loads the versions in the folder, in parallel, before the event loop runs; blocks.

        If a version fails, an older one may be loaded in its place.
        """
        self._scanner.open()
        default, named_by = (default, "--default-model") if default else self._scanner.default()
        self._check_default(default, named_by)
        try:
            for name, weights in (traffic or {}).items():
                self.repository.set_traffic(name, weights)
        except SeqserveError as error:
            raise OptionError(f"--traffic: {error}") from None
        try:
            while due := self._due_to_load():
                self.deployment.load_all(due)
            self.repository.choose_default(default, named_by)
        except BaseException:
            self.discard()
            raise

    def _check_default(self, default: str, named_by: str) -> None:
        # Before the models are loaded, which takes longer.
        names = self.repository.names()
        if default and default not in names:
            raise OptionError(
                f"{named_by}: {default!r} is not in the repository; there are {', '.join(names)}"
            )

    def discard(self) -> None:
        """Ends all engine processes when no event loop runs; blocks."""
        for engine in self._engines():
            engine.terminate()

    async def start(self) -> None:
        """Starts the engines, and scans the folder from now on."""
        for entry in self.repository.entries:
            if entry.model is not None:
                await self.deployment.start(entry, entry.model)
        if self._interval_s:
            self._watching = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Refuses new calls and changes no version any more."""
        if self._closed:
            return
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        # A call that has its version may still submit to it, as a batch does source by source.
        self.repository.is_closed = True
        self.deployment.close()

    async def stop(self) -> None:
        """Ends all engine processes; calls in progress fail."""
        self.close()
        await asyncio.gather(*(engine.stop() for engine in self._engines()))
        tasks = list(self._tasks.items())
        for entry, task in tasks:
            # A load finds its process gone, but a drain would wait for calls that have failed.
            if entry.state is ModelState.DRAINING:
                task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)

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
        if entry.state in (ModelState.AVAILABLE, ModelState.FAILED):
            self._begin_load(entry)
        await self._until_settled(entry)
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
            raise errors.InvalidRequest("version", "is not given; say which one is to be unloaded")
        entry = self.repository.find(name, version)
        entry.control = Control.UNLOADED
        if entry.state is ModelState.FAILED:
            entry.reset()
        self._apply()
        await self._until_settled(entry)
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
            self._apply()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.scan()
            except Exception:
                _log.exception("the model repository cannot be scanned")

    def _check_open(self) -> None:
        if self._closed:
            raise errors.Draining

    def _apply(self) -> None:
        if self._closed:
            return
        for entry in self._due_to_load():
            self._begin_load(entry)
        for name in self.repository.names():
            versions = self.repository.versions(name)
            for entry in to_drain(versions, self._keep, self.repository.weighted(name)):
                entry.start_draining()
                self._spawn(entry, self.deployment.unload)
            for entry in versions:
                if entry.is_removable:
                    self.repository.remove(entry)
        self.on_change()

    def _due_to_load(self) -> list[Entry]:
        return [
            entry
            for name in self.repository.names()
            for entry in to_load(
                self.repository.versions(name), self._keep, self.repository.weighted(name)
            )
        ]

    def _begin_load(self, entry: Entry) -> None:
        entry.start_loading()
        self._spawn(entry, self.deployment.load)

    def _spawn(self, entry: Entry, change: Callable[[Entry], Awaitable[None]]) -> None:
        async def run() -> None:
            await change(entry)
            self._apply()

        def forget(task: asyncio.Task[None]) -> None:
            if self._tasks.get(entry) is task:
                del self._tasks[entry]
            if not task.cancelled() and task.exception():
                _log.error("model %s", entry.label, exc_info=task.exception())

        task = self._tasks[entry] = asyncio.create_task(run())
        task.add_done_callback(forget)

    async def _until_settled(self, entry: Entry) -> None:
        while task := self._tasks.get(entry):
            # Unlike `await task`, a client that cancels its call does not cancel the load.
            await asyncio.wait([task])

    def _engines(self) -> list[ServingEngine]:
        loaded = [model.engine for model in self.repository.models()]
        return loaded + self.deployment.loading_engines

    def _states(self) -> list[tuple[str, int, str]]:
        return [(entry.name, entry.version, entry.state.value) for entry in self.repository.entries]


def rollout_of(options: ServeOptions, metrics: Metrics) -> Rollout:
    """Makes the rollout of a server; loads nothing yet."""
    return Rollout(
        Repository(),
        loader_of(options, metrics),
        metrics,
        keep=options.keep_versions,
        interval_s=options.watch_interval_s,
        drain_timeout_s=options.drain_timeout_s,
    )


def loader_of(options: ServeOptions, metrics: Metrics) -> Loader:
    """Makes the loader of a server."""
    launch = partial(
        EngineProcess,
        log_format=options.log_format,
        log_level=options.log_level,
        is_shared=options.front_count() > 1,
    )
    # Models without recommended options stay so if there is nothing to add.
    is_segmented = options.segmentation is not SegmentationMode.NONE
    generation = {"segmentation": options.segmentation.value} if is_segmented else {}
    cache = AnswerCache(options.cache_mb * 1_000_000, metrics.cache_counts, options.cache_scope)
    return Loader(
        repository=options.model_repository or standard_repository(),
        provider=options.provider,
        threads=options.threads,
        limits=options.engine_limits(),
        launch=launch,
        processes=options.process_count(),
        stall_s=options.stall_timeout_s,
        generation=generation,
        cache=cache if options.cache_mb else None,
    )
