"""Brings versions into service and out of it, at start and while the server runs.

``scanner`` reads the repository's folder now and then, and ``lifecycle`` decides what to load and
what to unload. A version takes calls only after its hashes were checked, its process is warm and
its self-test has passed. Until then, and when it fails, the versions before it go on serving.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from seqserve.errors import OptionError, SeqserveError
from seqserve_server.contract import logs
from seqserve_server.contract.errors import (
    Draining,
    EngineFault,
    InvalidRequest,
    ModelNotLoaded,
    ModelUnavailable,
    ProviderError,
    StartupError,
)
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.models.lifecycle import Control, ModelState, to_drain, to_load
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.models.repository import Entry, Repository, ServedModel
from seqserve_server.front.models.scanner import Inventory
from seqserve_server.front.models.traffic import Weights
from seqserve_server.front.telemetry.metrics import Metrics

# An engine that does not answer within it is counted as it was.
_PATIENCE_S = 2.0

_POLL_S = 0.01

_log = logging.getLogger(__name__)


class Rollout:
    """The versions of one repository, in all their states. Lives in the loop, once that runs."""

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
        """Takes the parts; nothing is loaded before :meth:`open`.

        Args:
            repository: Where versions are entered.
            loader: Knows the folder.
            metrics: Where loads are counted.
            keep: How many of the highest versions of a model are kept; 0 for all.
            interval_s: Between two looks at the folder; 0 for none.
            drain_timeout_s: How long calls of a version may take that is to be unloaded.
        """
        self.repository = repository
        self._inventory = Inventory(loader.repository, repository)
        self._loader = loader
        self._metrics = metrics
        self._keep = keep
        self._interval_s = interval_s
        self._drain_timeout_s = drain_timeout_s
        self._tasks: dict[Entry, asyncio.Task[None]] = {}
        self._loading: dict[Entry, RemoteEngine] = {}
        self._watching: asyncio.Task[None] | None = None
        self._closed = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when a version, or its engine, begins or stops taking calls."""
        metrics.show_versions(self._states)

    # ---- before there is a loop

    def open(self, default: str = "", traffic: dict[str, dict[int, int]] | None = None) -> None:
        """Loads what is there; a broken version is noted, and an older one may take its place.

        Blocks. Versions load beside each other.

        Args:
            default: Name of the default model; the only one where empty.
            traffic: Weights of versions by model.

        Raises:
            OptionError: The folder is not there, or holds not what the arguments name.
            StartupError: No model in it is sound, or the caches do not fit.
            ProviderError: The execution provider is not available.
        """
        self._inventory.begin()
        for name, weights in (traffic or {}).items():
            _set_traffic(self.repository, name, weights)
        try:
            while due := self._to_load():
                self._load_all(due)
            self.repository.choose_default(default)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Ends all processes of a server that does not run; blocks."""
        for engine in self._engines():
            engine.discard()

    def _load_all(self, due: list[Entry]) -> None:
        began_s = time.perf_counter()
        for entry in due:
            entry.begin()
            self._loading[entry] = self._loader.begin(entry.name, entry.version)
        for entry in due:
            try:
                model = self._loader.load(entry.name, entry.version, self._loading[entry])
            except (ProviderError, StartupError):
                # The server's, not this model's: another would fare no better.
                raise
            except Exception as error:
                self._failed(entry, error)
            else:
                self._loaded(entry, model, time.perf_counter() - began_s)
            del self._loading[entry]

    # ---- while the server runs

    async def start(self) -> None:
        """Starts the engines, and watches the folder from now on."""
        for model in self.repository.models():
            await self._start(model)
        if self._interval_s:
            self._watching = asyncio.create_task(self._watch())

    def close(self) -> None:
        """Takes no new calls, and changes nothing any more."""
        if self._closed:
            return
        self._closed = True
        if self._watching is not None:
            self._watching.cancel()
        # Calls that have their version go on to submit to it, as a batch does source by source.
        self.repository.is_closed = True
        for engine in self._loading.values():
            engine.close()

    async def stop(self) -> None:
        """Ends all processes; what is still under way fails."""
        self.close()
        await asyncio.gather(*(engine.stop() for engine in self._engines()))
        tasks = list(self._tasks.items())
        for entry, task in tasks:
            # One that loads finds its process gone; one that drains has nobody left to wait for.
            if entry.state is ModelState.DRAINING:
                task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)

    def _engines(self) -> list[RemoteEngine]:
        return [*(model.engine for model in self.repository.models()), *self._loading.values()]

    async def load(self, name: str, version: int = 0) -> Entry:
        """Loads a version whatever the watch thinks of it, and waits until it is ready.

        Args:
            name: Of the model; empty for the default.
            version: 0 for the highest one in the folder.

        Raises:
            ModelNotFound: It is not in the folder.
            ModelNotLoaded: It is not sound; the message says why.
            ModelUnavailable: It is being unloaded just now, or the folder cannot be read.
            Draining: The server shuts down.
        """
        self._check_open()
        await self._inventory.find(name or self.repository.default)
        entry = self.repository.find(name, version)
        if not version:
            entry = self.repository.versions(entry.name)[-1]
        if entry.state is ModelState.DRAINING:
            raise ModelUnavailable(f"{entry.label} is being unloaded; try again when it is")
        entry.control = Control.LOADED
        if entry.state in (ModelState.AVAILABLE, ModelState.FAILED):
            self._begin(entry)
        await self._settled(entry)
        if entry.state is not ModelState.READY:
            self._check_open()
            reason = entry.reason or "it was unloaded meanwhile"
            raise ModelNotLoaded(f"{entry.label} could not be loaded: {reason}")
        return entry

    async def unload(self, name: str, version: int) -> Entry:
        """Takes a version out of service, and waits until its process has ended.

        Args:
            name: Of the model; empty for the default.
            version: Must be given.

        Raises:
            ModelNotFound: There is none such.
            InvalidRequest: No version was given.
            Draining: The server shuts down.
        """
        self._check_open()
        if not version:
            raise InvalidRequest("version", "is not given; say which one is to be unloaded")
        entry = self.repository.find(name, version)
        entry.control = Control.UNLOADED
        if entry.state is ModelState.FAILED:
            entry.forgive()
        self._act()
        await self._settled(entry)
        return entry

    def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Shares the calls that name no version; a version with a share is kept.

        Raises:
            ModelNotFound: The model or a version is not there.
            InvalidRequest: The weights make no sense.
            Draining: The server shuts down.
        """
        self._check_open()
        entries = self.repository.set_traffic(name, weights)
        logs.event("traffic", {"model": entries[0].name, "weights": dict(weights)})
        self._act()
        return entries

    def _check_open(self) -> None:
        if self._closed:
            raise Draining("the server is shutting down; call another one")

    async def look(self) -> None:
        """Looks at the folder once, and begins what follows."""
        if await self._inventory.look():
            self._act()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self.look()
            except Exception:
                _log.exception("the model repository could not be looked at")

    def _act(self) -> None:
        """Begins to load and to drain what is due, and forgets what is gone."""
        if self._closed:
            return
        for entry in self._to_load():
            self._begin(entry)
        for name in self.repository.names():
            versions = self.repository.versions(name)
            for version in to_drain(versions, self._keep, self.repository.shared(name)):
                assert isinstance(version, Entry)
                version.drain()
                self._spawn(version, self._take_down(version))
            for entry in versions:
                if entry.is_gone:
                    self.repository.remove(entry)
        self.on_change()

    def _to_load(self) -> list[Entry]:
        return [
            version
            for name in self.repository.names()
            for version in to_load(
                self.repository.versions(name), self._keep, self.repository.shared(name)
            )
            if isinstance(version, Entry)
        ]

    def _begin(self, entry: Entry) -> None:
        entry.begin()
        self._spawn(entry, self._bring_up(entry))

    def _spawn(self, entry: Entry, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[entry] = asyncio.create_task(work)
        task.add_done_callback(lambda task: self._over(entry, task))

    def _over(self, entry: Entry, task: asyncio.Task[None]) -> None:
        if self._tasks.get(entry) is task:
            del self._tasks[entry]
        if not task.cancelled() and task.exception():
            _log.error("model %s", entry.label, exc_info=task.exception())

    async def _settled(self, entry: Entry) -> None:
        """Waits until a version neither loads nor drains."""
        while task := self._tasks.get(entry):
            # Whoever waits may go; the work goes on.
            await asyncio.wait([task])

    async def _bring_up(self, entry: Entry) -> None:
        began_s = time.perf_counter()
        try:
            engine = await asyncio.to_thread(self._loader.begin, entry.name, entry.version)
            self._loading[entry] = engine
            if self._closed:
                engine.close()
            try:
                model = await asyncio.to_thread(
                    self._loader.load, entry.name, entry.version, engine
                )
                if self._closed:
                    raise EngineFault("the server stops")
                await self._start(model)
            except BaseException:
                await engine.stop()
                raise
            finally:
                del self._loading[entry]
        except Exception as error:
            self._failed(entry, error)
        else:
            self._loaded(entry, model, time.perf_counter() - began_s)
        self._act()

    async def _take_down(self, entry: Entry) -> None:
        model = entry.model
        assert model is not None
        began_s = time.perf_counter()
        self.on_change()
        finished = await model.calls.wait_none(self._drain_timeout_s)
        with suppress(TimeoutError):
            # What it has done since the last scrape is to be seen by the next one.
            async with asyncio.timeout(_PATIENCE_S):
                await _counted(model.engine)
        await model.engine.stop()
        manifest = model.manifest
        self._metrics.model_unloaded(
            manifest.name, manifest.version, manifest.precision, model.provider.value, model.engine
        )
        entry.model = None
        entry.end()
        done = {
            "model": entry.label,
            "all_finished": finished,
            "seconds": time.perf_counter() - began_s,
        }
        logs.event("model unloaded", done)
        self._act()

    async def _start(self, model: ServedModel) -> None:
        model.engine.on_change = lambda is_up: self.on_change()
        await model.engine.start()

    def _loaded(self, entry: Entry, model: ServedModel, seconds: float) -> None:
        entry.model = model
        entry.succeed()
        manifest, engine = model.manifest, model.engine
        provider = model.provider.value
        self._metrics.model_loaded(entry.name, entry.version, manifest.precision, provider, engine)
        loaded = {
            "model": entry.label,
            "precision": manifest.precision,
            "provider": provider,
            "seconds": seconds,
            "slots": engine.slots,
            "cache_bytes": engine.cache_bytes,
        }
        logs.event("model loaded", loaded)

    def _failed(self, entry: Entry, error: Exception) -> None:
        if self._closed:
            entry.fail("the server stops")
            return
        if isinstance(error, SeqserveError):
            reason = str(error)
        else:
            # What a broken tokenizer makes a library raise must not keep sound ones from service.
            _log.error("model %s", entry.label, exc_info=error)
            reason = f"{entry.label}: cannot be read: {type(error).__name__}: {error}"
        # Callers see it: where the repository lies on this machine is not for them.
        entry.fail(reason.replace(f"{self._loader.repository}{os.sep}", ""))
        self._metrics.model_failed()
        failure = {"model": entry.label, "reason": entry.reason}
        logs.event("model failed", failure, logging.ERROR)

    def _states(self) -> list[tuple[str, int, str]]:
        return [(entry.name, entry.version, entry.state.value) for entry in self.repository.entries]


async def _counted(engine: RemoteEngine) -> None:
    """Waits until all that an engine has done is in its report.

    Calls that were cancelled are over at once, but are counted when their rows leave.
    """
    while (report := await asyncio.wrap_future(engine.ask())).slots_in_use or report.queue_depth:
        await asyncio.sleep(_POLL_S)
    # Rows have left a moment before the answers of their last step are counted.
    await asyncio.wrap_future(engine.ask())


def _set_traffic(repository: Repository, name: str, weights: Weights) -> None:
    try:
        repository.set_traffic(name, weights)
    except SeqserveError as error:
        raise OptionError(f"--traffic: {error}") from None
