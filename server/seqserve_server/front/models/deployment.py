"""Loads versions and takes them out of service; logs and counts what happened.

A version takes calls only after its hashes were checked, its engine process is warm and its
self-test has passed.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import EngineFault, ProviderError, StartupError
from seqserve_server.front.engine_client.group import LaunchedGroup
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loader import Loader
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs

_log = logging.getLogger(__name__)


async def _nothing(entry: Entry) -> None:
    pass


async def _until_idle(entry: Entry, timeout_s: float) -> bool:
    assert entry.model is not None
    return await entry.model.calls.wait_idle(timeout_s)


class Deployment:
    """Loads and unloads versions and moves their entries through the states."""

    def __init__(self, loader: Loader, metrics: Metrics, drain_timeout_s: float) -> None:
        self.loader, self.metrics = loader, metrics
        self._drain_timeout_s = drain_timeout_s
        self.engines: dict[Entry, LaunchedGroup] = {}
        """Engines of the versions that are loading or loaded."""
        self._tasks: dict[Entry, asyncio.Task[None]] = {}
        self._closed = False
        self.on_settled: Callable[[], None] = lambda: None
        """Called when a version has been loaded, has failed or has been unloaded."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when the engine of a version fails, starts again or is trusted again."""
        self.on_started: Callable[[Entry], Awaitable[None]] = _nothing
        """Awaited when the engine of a version runs, before the version is ready."""
        self.until_idle: Callable[[Entry, float], Awaitable[bool]] = _until_idle
        """Waits for the calls of a version that takes no new ones; False after a timeout."""

    def close(self) -> None:
        """Ends the loads in progress; no version becomes ready from now on."""
        self._closed = True
        for entry, engine in self.engines.items():
            if entry.state is ModelState.LOADING:
                engine.close()

    def load_all(self, entries: Sequence[Entry]) -> None:
        """Loads versions in parallel, before the event loop runs; blocks."""
        began_s = time.perf_counter()
        for entry in entries:
            entry.move(ModelState.LOADING)
            self.engines[entry] = self.loader.begin(entry.name, entry.version)
        for entry in entries:
            try:
                entry.model = self.loader.load(entry.name, entry.version, self.engines[entry])
            except (ProviderError, StartupError):
                # The cause is this server's configuration: every other version would fail too.
                raise
            except Exception as error:
                self.fail(entry, error)
            else:
                self._finish(entry, time.perf_counter() - began_s)

    async def start(self, entry: Entry) -> None:
        """Connects the engine of a loaded version to the event loop."""
        engine = self.engines[entry]

        def changed() -> None:
            entry.follow_engine()
            self.on_change()

        engine.watch(changed)
        await engine.start()

    def begin_load(self, entry: Entry) -> None:
        """Begins to load a version; once it has settled, it is READY, or FAILED with a reason."""
        entry.move(ModelState.LOADING)
        self._spawn(entry, self._load)

    def begin_unload(self, entry: Entry) -> None:
        """Begins to drain a version, whose process ends after its calls."""
        entry.move(ModelState.DRAINING)
        self._spawn(entry, self._unload)

    async def until_settled(self, entry: Entry) -> None:
        """Waits until a version is neither being loaded nor unloaded."""
        while task := self._tasks.get(entry):
            # Unlike `await task`, a client that cancels its call does not cancel the load.
            await asyncio.wait([task])

    async def stop(self) -> None:
        """Waits until nothing is being loaded or unloaded; the engines have been ended."""
        tasks = list(self._tasks.items())
        for entry, task in tasks:
            # A load finds its process gone, but a drain would wait for calls that have failed.
            if entry.state is ModelState.DRAINING:
                task.cancel()
        await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)

    def _spawn(self, entry: Entry, change: Callable[[Entry], Awaitable[None]]) -> None:
        async def run() -> None:
            await change(entry)
            self.on_settled()

        def forget(task: asyncio.Task[None]) -> None:
            if self._tasks.get(entry) is task:
                del self._tasks[entry]
            if not task.cancelled() and task.exception():
                _log.error("model %s", entry.label, exc_info=task.exception())

        task = self._tasks[entry] = asyncio.create_task(run())
        task.add_done_callback(forget)

    async def _load(self, entry: Entry) -> None:
        began_s = time.perf_counter()
        try:
            engine = await asyncio.to_thread(self.loader.begin, entry.name, entry.version)
            self.engines[entry] = engine
            try:
                await self._start_up(entry, engine)
            except BaseException:
                await engine.stop()
                raise
        except Exception as error:
            self.fail(entry, error)
        else:
            self._finish(entry, time.perf_counter() - began_s)
            # It may have failed already.
            entry.follow_engine()

    async def _unload(self, entry: Entry) -> None:
        model = entry.model
        assert model is not None
        began_s = time.perf_counter()
        all_finished = await self.until_idle(entry, self._drain_timeout_s)
        # The next scrape shows what the engine did since the last one.
        await model.engine.newest_stats(when_idle=True)
        await model.engine.stop()
        if model.answers is not None:
            model.answers.close()
        manifest = model.manifest
        self.metrics.model_unloaded(
            manifest.name, manifest.version, manifest.precision, model.provider.value
        )
        self.metrics.forget_model_later(manifest.name, manifest.version)
        entry.model = None
        del self.engines[entry]
        entry.move(ModelState.AVAILABLE)
        seconds = time.perf_counter() - began_s
        fields = {"model": entry.label, "all_finished": all_finished, "seconds": seconds}
        logs.event("model unloaded", fields)

    async def _start_up(self, entry: Entry, engine: LaunchedGroup) -> None:
        if self._closed:
            engine.close()
        model = await asyncio.to_thread(self.loader.load, entry.name, entry.version, engine)
        if self._closed:
            raise EngineFault("the server stops")
        await self.start(entry)
        await self.on_started(entry)
        entry.model = model

    def _finish(self, entry: Entry, seconds: float) -> None:
        model = entry.model
        assert model is not None
        entry.move(ModelState.READY)
        precision, engine = model.manifest.precision, model.engine
        provider = model.provider.value
        self.metrics.model_loaded(entry.name, entry.version, precision, provider, engine, seconds)
        fields = {
            "model": entry.label,
            "precision": precision,
            "provider": provider,
            "seconds": seconds,
            "processes": len(engine),
            "slots": engine.capacity.slots,
            "cache_bytes": engine.capacity.cache_bytes,
        }
        logs.event("model loaded", fields)

    def fail(self, entry: Entry, error: Exception) -> None:
        """Records that a version could not be loaded."""
        self.engines.pop(entry, None)
        if self._closed:
            entry.move(ModelState.FAILED, "the server stops")
            return
        if isinstance(error, SeqserveError):
            reason = str(error)
        else:
            # A library may raise anything for a broken file; other versions go on loading.
            _log.error("model %s", entry.label, exc_info=error)
            reason = f"{entry.label}: cannot be read: {type(error).__name__}: {error}"
        # Clients see the reason, but not where the repository is on this machine.
        entry.move(ModelState.FAILED, reason.replace(f"{self.loader.repository}{os.sep}", ""))
        self.metrics.model_failed()
        fields = {"model": entry.label, "reason": entry.reason}
        logs.event("model failed", fields, logging.ERROR)
