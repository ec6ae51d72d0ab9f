"""Loads the versions of a repository: starts their engine processes, reads what the front needs."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from seqserve_server.artifact.manifest import Manifest, is_small
from seqserve_server.artifact.repository import check_inside, standard_repository
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.options import SegmentationMode
from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.engine_client.client import EngineProcess
from seqserve_server.front.engine_client.group import EngineGroup, LaunchedGroup
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.loaded_model import ServedModel, read_tokenizer

_SMALL, _LARGE = 2, 16
"""Workers of a small and of any other model in one process, at most, if no number of processes is
given: workers wait for each other's Python, and each process has a copy of the weights. On 14 cores
7 processes of a small model decoded 3.7 times as fast as one, 2 of a larger one 1.06 times."""
_FEW = 4
"""Workers that one process holds in any case."""
_PROCESS_BYTES = 75_000_000
"""Memory of an engine process without its model, before its first answer."""


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
        manifest = self.manifest(name, version)
        tokenizer = read_tokenizer(self._folder(name, version), manifest)
        return ServedModel(
            manifest=replace(manifest, generation=self.generation | manifest.generation),
            tokenizer=tokenizer,
            engine=engine,
            provider=self.provider,
        )

    def manifest(self, name: str, version: int) -> Manifest:
        """Reads the manifest of a version."""
        folder = self._folder(name, version)
        check_inside(folder, self.repository)
        manifest = Manifest.read(folder)
        if (manifest.name, manifest.version) != (name, version):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        return manifest

    def num_bytes(self, manifest: Manifest) -> int:
        """Returns the memory that an idle version takes: each process has its own weights."""
        files = sum(each.bytes for each in manifest.files.values())
        folder = self._folder(manifest.name, manifest.version)
        return self._processes(folder) * (files + _PROCESS_BYTES)

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


def loader_of(options: ServeOptions, counts_of: Callable[[str, int], CacheCounts]) -> Loader:
    """Makes the loader of a server, and its cache, which counts the answers of each version."""
    launch = partial(
        EngineProcess,
        log_format=options.log_format,
        log_level=options.log_level,
        is_shared=options.front_count() > 1,
    )
    # Models without recommended options stay so if there is nothing to add.
    is_segmented = options.segmentation is not SegmentationMode.NONE
    generation = {"segmentation": options.segmentation.value} if is_segmented else {}
    cache = AnswerCache(options.cache_mb * 1_000_000, counts_of, options.cache_scope)
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
