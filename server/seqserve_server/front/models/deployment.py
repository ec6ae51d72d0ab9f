"""Loads versions and takes them out of service; logs and counts what happened.

A version takes calls only after its hashes were checked, its engine process is warm and its
self-test has passed.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.artifact.manifest import is_small
from seqserve_server.contract.errors import ArtifactError, EngineFault, ProviderError, StartupError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.front.engine_client.group import EngineGroup, LaunchedGroup
from seqserve_server.front.engine_client.process import EngineProcess
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.loaded_model import ServedModel, read_artifact
from seqserve_server.front.models.repository import Entry
from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.process import logs

_log = logging.getLogger(__name__)


_SMALL, _LARGE = 2, 16
"""Workers of a small and of any other model in one process, at most, if no number of processes is
given: workers wait for each other's Python, and each process has a copy of the weights. On 14 cores
7 processes of a small model decoded 3.7 times as fast as one, 2 of a larger one 1.06 times."""
_FEW = 4
"""Workers that one process holds in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads the versions of one repository; every method blocks."""

    repository: Path
    provider: Provider
    threads: int
    limits: EngineLimits
    launch: Callable[[Setup], EngineProcess]
    processes: int | None = None
    """Engine processes of each version, no more than workers; None if it follows from the model."""
    stall_s: float = 0.0
    """Time without progress after which an engine process is killed; 0 for never."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Options of requests that do not set them, to models whose manifest does not either."""
    cache: AnswerCache | None = None
    """Where answers are cached; None if they are not."""

    def begin(self, name: str, version: int) -> LaunchedGroup:
        """Starts the engine processes of a version, so that several can load at the same time."""
        folder = self._folder(name, version)
        launches = [
            partial(self.launch, Setup(folder, self.provider, self.threads, limits, gpu))
            for gpu, limits in enumerate(self.limits.shares(self._processes(folder)))
        ]
        return LaunchedGroup(launches, self.stall_s, label=f"{name}/{version}")

    def load(self, name: str, version: int, engine: LaunchedGroup) -> ServedModel:
        """Waits until a version is verified and ready; on failure its process is ended."""
        try:
            model = self.read(name, version, engine)
            engine.load()
        except BaseException:
            engine.terminate()
            raise
        return self.caching(model)

    def read(self, name: str, version: int, engine: EngineGroup) -> ServedModel:
        """Reads what the front needs of a version, whose engine may still load."""
        folder = self._folder(name, version)
        check_inside(folder, self.repository)
        manifest, tokenizer = read_artifact(folder)
        if (manifest.name, manifest.version) != (name, version):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        return ServedModel(
            manifest=replace(manifest, generation=self.generation | manifest.generation),
            tokenizer=tokenizer,
            engine=engine,
            provider=self.provider,
        )

    def caching(self, model: ServedModel) -> ServedModel:
        """Begins the cached answers of a version whose engine is ready."""
        if self.cache is None:
            return model
        manifest = model.manifest
        return replace(model, answers=self.cache.version(manifest.name, manifest.version))

    def _folder(self, name: str, version: int) -> Path:
        return self.repository / name / str(version)

    def _processes(self, folder: Path) -> int:
        if self.processes is not None:
            return self.processes
        try:
            most = _SMALL if is_small(folder) else _LARGE
        except OSError:
            # The engine will tell what is wrong with the artifact.
            return 1
        workers = self.limits.workers
        return 1 if workers <= _FEW else -(-workers // most)


def check_inside(folder: Path, repository: Path) -> None:
    """Raises ArtifactError if a folder is a link out of the repository."""
    if not folder.resolve().is_relative_to(repository.resolve()):
        raise ArtifactError(
            f"{folder}: is a link that leads out of the repository; put the model itself there"
        )


OnStarted: TypeAlias = Callable[[Entry, ServedModel], Awaitable[None]]
UntilIdle: TypeAlias = Callable[[Entry, ServedModel, float], Awaitable[bool]]


async def _nothing(entry: Entry, model: ServedModel) -> None:
    pass


async def _until_idle(entry: Entry, model: ServedModel, timeout_s: float) -> bool:
    return await model.calls.wait_idle(timeout_s)


class Deployment:
    """Loads and unloads versions and moves their entries through the states."""

    def __init__(self, loader: Loader, metrics: Metrics, drain_timeout_s: float) -> None:
        """Loads nothing yet; the calls of an unloaded version get ``drain_timeout_s`` to finish."""
        self._loader = loader
        self._metrics = metrics
        self._drain_timeout_s = drain_timeout_s
        self._loading: dict[Entry, LaunchedGroup] = {}
        self._closed = False
        self.on_change: Callable[[], None] = lambda: None
        """Called when the engine of a version fails, starts again or is trusted again."""
        self.on_started: OnStarted = _nothing
        """Awaited when the engine of a version runs, before the version is ready."""
        self.until_idle: UntilIdle = _until_idle
        """Waits for the calls of a version that takes no new ones; False after a timeout."""

    @property
    def loading_engines(self) -> list[LaunchedGroup]:
        """Engines of the versions that are loading."""
        return list(self._loading.values())

    def close(self) -> None:
        """Ends the loads in progress; no version becomes ready from now on."""
        self._closed = True
        for engine in self.loading_engines:
            engine.close()

    def load_all(self, entries: Iterable[Entry]) -> None:
        """Loads versions in parallel, before the event loop runs; blocks."""
        began_s = time.perf_counter()
        for entry in entries:
            entry.start_loading()
            self._loading[entry] = self._loader.begin(entry.name, entry.version)
        for entry, engine in list(self._loading.items()):
            try:
                model = self._loader.load(entry.name, entry.version, engine)
            except (ProviderError, StartupError):
                # The cause is this server's configuration: every other version would fail too.
                raise
            except Exception as error:
                self._fail(entry, error)
            else:
                self._finish(entry, model, time.perf_counter() - began_s)
            del self._loading[entry]

    async def start(self, entry: Entry, model: ServedModel) -> None:
        """Connects the engine of a loaded version to the event loop."""
        model.engine.watch(partial(self._engine_changed, entry))
        await model.engine.start()

    def _engine_changed(self, entry: Entry) -> None:
        entry.follow_engine()
        self.on_change()

    async def load(self, entry: Entry) -> None:
        """Loads a version; afterwards its entry is READY, or FAILED with a reason."""
        began_s = time.perf_counter()
        try:
            engine = await asyncio.to_thread(self._loader.begin, entry.name, entry.version)
            self._loading[entry] = engine
            try:
                model = await self._start_up(entry, engine)
            except BaseException:
                await engine.stop()
                raise
            finally:
                del self._loading[entry]
        except Exception as error:
            self._fail(entry, error)
        else:
            self._finish(entry, model, time.perf_counter() - began_s)
            # It may have failed already.
            entry.follow_engine()

    async def unload(self, entry: Entry) -> None:
        """Waits for the calls of a draining version, then ends its process."""
        model = entry.model
        assert model is not None
        began_s = time.perf_counter()
        all_finished = await self.until_idle(entry, model, self._drain_timeout_s)
        # The next scrape shows what the engine did since the last one.
        await model.engine.newest_stats(when_idle=True)
        await model.engine.stop()
        if model.answers is not None:
            model.answers.close()
        manifest = model.manifest
        self._metrics.model_unloaded(
            manifest.name, manifest.version, manifest.precision, model.provider.value
        )
        self._metrics.forget_model_later(manifest.name, manifest.version)
        entry.model = None
        entry.finish_draining()
        seconds = time.perf_counter() - began_s
        fields = {"model": entry.label, "all_finished": all_finished, "seconds": seconds}
        logs.event("model unloaded", fields)

    async def _start_up(self, entry: Entry, engine: LaunchedGroup) -> ServedModel:
        if self._closed:
            engine.close()
        model = await asyncio.to_thread(self._loader.load, entry.name, entry.version, engine)
        if self._closed:
            raise EngineFault("the server stops")
        await self.start(entry, model)
        await self.on_started(entry, model)
        return model

    def _finish(self, entry: Entry, model: ServedModel, seconds: float) -> None:
        entry.model = model
        entry.finish_loading()
        precision, engine = model.manifest.precision, model.engine
        provider = model.provider.value
        self._metrics.model_loaded(entry.name, entry.version, precision, provider, engine)
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

    def _fail(self, entry: Entry, error: Exception) -> None:
        if self._closed:
            entry.fail("the server stops")
            return
        if isinstance(error, SeqserveError):
            reason = str(error)
        else:
            # A library may raise anything for a broken file; other versions go on loading.
            _log.error("model %s", entry.label, exc_info=error)
            reason = f"{entry.label}: cannot be read: {type(error).__name__}: {error}"
        # Clients see the reason, but not where the repository is on this machine.
        entry.fail(reason.replace(f"{self._loader.repository}{os.sep}", ""))
        self._metrics.model_failed()
        fields = {"model": entry.label, "reason": entry.reason}
        logs.event("model failed", fields, logging.ERROR)
