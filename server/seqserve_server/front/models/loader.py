"""Loads a version from its folder: manifest, tokenizer and engine processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from seqserve_server.artifact.files import check_file
from seqserve_server.artifact.manifest import Manifest, is_small
from seqserve_server.artifact.template import Template
from seqserve_server.contract.bounds import check_recommended
from seqserve_server.contract.errors import ArtifactError, InvalidRequest
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.front.engine_client.client import HostProcess
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.folders import check_inside
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.text.tokenizer import FILE, TARGET_FILE, Tokenizer

_WORKERS_PER_PROCESS = 4
"""Workers of a small model in one process, at most, if no number of processes is given: each holds
the interpreter lock for a tenth of its time, and waits for it if more do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads the versions of one repository; every method blocks."""

    repository: Path
    provider: Provider
    threads: int
    limits: EngineLimits
    launch: Callable[[Setup], HostProcess]
    processes: int | None = None
    """Engine processes of each version, no more than workers; None if it follows from the model."""
    stall_s: float = 0.0
    """Time without progress after which an engine process is killed; 0 for never."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Options of requests that do not set them, to models whose manifest does not either."""
    cache: AnswerCache | None = None
    """Where answers are kept; None if they are not."""

    def begin(self, name: str, version: int) -> EngineGroup:
        """Starts the engine processes of a version, so that several can load at the same time."""
        folder = self._folder(name, version)
        launches = [
            partial(self.launch, Setup(folder, self.provider, self.threads, limits, gpu))
            for gpu, limits in enumerate(self.limits.shares(self._processes(folder)))
        ]
        return EngineGroup(launches, self.stall_s, label=f"{name}/{version}")

    def _processes(self, folder: Path) -> int:
        """Counts the engine processes of a version: more than one only if copies cost little."""
        if self.processes is not None:
            return self.processes
        try:
            is_worth_it = is_small(folder)
        except OSError:
            # The engine will tell what is wrong with the artifact.
            is_worth_it = False
        return -(-self.limits.workers // _WORKERS_PER_PROCESS) if is_worth_it else 1

    def load(self, name: str, version: int, engine: EngineGroup) -> ServedModel:
        """Waits until a version is verified and ready; on failure its process is ended."""
        try:
            return self._load(self._folder(name, version), engine)
        except BaseException:
            engine.terminate()
            raise

    def _folder(self, name: str, version: int) -> Path:
        return self.repository / name / str(version)

    def _load(self, folder: Path, engine: EngineGroup) -> ServedModel:
        check_inside(folder, self.repository)
        manifest, tokenizer = read_artifact(folder)
        if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        engine.load()
        generation = self.generation | manifest.generation
        manifest = replace(manifest, generation=generation)
        answers = None
        if self.cache is not None:
            answers = self.cache.version(manifest.name, manifest.version)
        return ServedModel(
            manifest=manifest,
            tokenizer=tokenizer,
            engine=engine,
            provider=self.provider,
            answers=answers,
        )


def read_artifact(folder: Path) -> tuple[Manifest, Tokenizer]:
    """Reads of an artifact what reads requests and writes answers; the engine reads the rest.

    Raises:
        ArtifactError: It is damaged, or made for another release.
    """
    manifest = Manifest.read(folder)
    # The only files that are opened here; the engine checks all of them.
    for name in (FILE, TARGET_FILE):
        if name in manifest.files:
            check_file(folder / name, manifest.files[name])
    tokenizer = Tokenizer.of_artifact(folder, manifest)
    # Computed here, where no call waits for it.
    _ = tokenizer.alphabet
    _check_template(manifest, tokenizer)
    try:
        check_recommended(manifest.generation)
    except InvalidRequest as error:
        raise ArtifactError(f"{manifest.label}: generation: {error}") from None
    return manifest, tokenizer


def _check_template(manifest: Manifest, tokenizer: Tokenizer) -> None:
    """Refuses a template whose tokens a vocabulary lacks."""
    template = manifest.template or Template()
    missing = {token for token in template.source_tokens if tokenizer.source_id_of(token) is None}
    missing |= {token for token in template.target_tokens if tokenizer.id_of(token) is None}
    for token in sorted(missing):
        reason = f"template: tokenizer.json has no token {token!r:.80}; import the model again"
        raise ArtifactError(f"{manifest.label}: {reason}")
