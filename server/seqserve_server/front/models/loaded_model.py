"""Loaded models, and how they are loaded: manifest, tokenizer and engine processes of a version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from seqserve_server.contract.bounds import check_recommended
from seqserve_server.contract.errors import ArtifactError, InvalidRequest
from seqserve_server.contract.events import Event, Timeline
from seqserve_server.contract.limits import EngineLimits, is_small
from seqserve_server.contract.manifest import Manifest, check_file
from seqserve_server.contract.messages import Ready, Setup
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.request import Spec
from seqserve_server.contract.template import Template
from seqserve_server.contract.tokenizer import FILE, TARGET_FILE, Tokenizer
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.engine_client.process import HostProcess
from seqserve_server.front.engine_client.refusals import RefusalCache
from seqserve_server.front.models.answer_cache import AnswerCache, VersionAnswers

_WORKERS_PER_PROCESS = 4
"""Workers of a small model in one process, at most, if no number of processes is given: each holds
the interpreter lock for a tenth of its time, and waits for it if more do."""


class AnsweringEngine(Protocol):
    """An engine that answers requests, in this process or in others; used in the event loop."""

    capacity: Ready
    """What it can hold."""
    refusals: RefusalCache
    """Its recent refusals."""

    @property
    def pending(self) -> int:
        """Requests that have not ended."""

    def submit(self, spec: Spec, receive: Callable[[Event, Timeline | None], None]) -> int:
        """Begins a request, whose events ``receive`` gets in the loop.

        Returns:
            The request id, for :meth:`cancel`.

        Raises:
            ServiceError: No requests are taken.
        """

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """One version of a model: its manifest, tokenizer and engine."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: AnsweringEngine
    answers: VersionAnswers | None = None
    """Its cached answers; None if answers are not cached."""
    known_options: dict[bytes, Any] = field(default_factory=dict)
    """Options of recent requests, as they were sent and as they were read."""


class ActiveCalls:
    """Counts calls in progress and wakes tasks that wait for the last one; for the event loop."""

    def __init__(self) -> None:
        """Starts at zero."""
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        """Counts a call that begins."""
        self._count += 1
        self._idle.clear()

    def leave(self) -> None:
        """Counts a call that has ended."""
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Waits until no call is in progress; returns False on timeout. None waits forever."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        except TimeoutError:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ServedModel(LoadedModel):
    """A loaded version of a server, whose engines are processes."""

    engine: EngineGroup
    provider: Provider
    calls: ActiveCalls = field(default_factory=ActiveCalls)
    """Calls that were given this version; it stays loaded until they have ended."""


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
    """Where answers are cached; None if they are not."""

    def begin(self, name: str, version: int) -> EngineGroup:
        """Starts the engine processes of a version, so that several can load at the same time."""
        folder = self._folder(name, version)
        launches = [
            partial(self.launch, Setup(folder, self.provider, self.threads, limits, gpu))
            for gpu, limits in enumerate(self.limits.shares(self._processes(folder)))
        ]
        return EngineGroup(launches, self.stall_s, label=f"{name}/{version}")

    def load(self, name: str, version: int, engine: EngineGroup) -> ServedModel:
        """Waits until a version is verified and ready; on failure its process is ended."""
        try:
            return self._load(self._folder(name, version), engine)
        except BaseException:
            engine.terminate()
            raise

    def _folder(self, name: str, version: int) -> Path:
        return self.repository / name / str(version)

    def _processes(self, folder: Path) -> int:
        if self.processes is not None:
            return self.processes
        # More than one only if copies of the weights cost little.
        try:
            is_worth_it = is_small(folder)
        except OSError:
            # The engine will tell what is wrong with the artifact.
            is_worth_it = False
        return -(-self.limits.workers // _WORKERS_PER_PROCESS) if is_worth_it else 1

    def _load(self, folder: Path, engine: EngineGroup) -> ServedModel:
        check_inside(folder, self.repository)
        manifest, tokenizer = read_artifact(folder)
        if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        engine.load()
        answers = None
        if self.cache is not None:
            answers = self.cache.version(manifest.name, manifest.version)
        return ServedModel(
            manifest=replace(manifest, generation=self.generation | manifest.generation),
            tokenizer=tokenizer,
            engine=engine,
            provider=self.provider,
            answers=answers,
        )


def check_inside(folder: Path, repository: Path) -> None:
    """Raises ArtifactError if a folder is a link out of the repository."""
    if not folder.resolve().is_relative_to(repository.resolve()):
        raise ArtifactError(
            f"{folder}: is a link that leads out of the repository; put the model itself there"
        )


def read_artifact(folder: Path) -> tuple[Manifest, Tokenizer]:
    """Reads the files of an artifact that the front needs; the engine reads the rest.

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
    template = manifest.template or Template()
    missing = {token for token in template.source_tokens if tokenizer.source_id_of(token) is None}
    missing |= {token for token in template.target_tokens if tokenizer.id_of(token) is None}
    for token in sorted(missing):
        reason = f"template: tokenizer.json has no token {token!r:.80}; import the model again"
        raise ArtifactError(f"{manifest.label}: {reason}")
