"""Loads a version from its folder: manifest, tokenizer and engine process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from google.protobuf import json_format

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.manifest import Manifest, check_file
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.template import Template
from seqserve_server.contract.tokenizer import FILE, TARGET_FILE, Tokenizer
from seqserve_server.front.engine_client.client import HostProcess, RemoteEngine
from seqserve_server.front.models.answer_cache import AnswerCache
from seqserve_server.front.models.folders import check_inside
from seqserve_server.front.models.repository import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Loads the versions of one repository; every method blocks."""

    repository: Path
    provider: Provider
    threads: int
    limits: EngineLimits
    launch: Callable[[Setup], HostProcess]
    stall_s: float = 0.0
    """Time without progress after which an engine process is killed; 0 for never."""
    generation: dict[str, Any] = field(default_factory=dict)
    """Options of requests that do not set them, to models whose manifest does not either."""
    cache: AnswerCache | None = None
    """Where answers are kept; None if they are not."""

    def begin(self, name: str, version: int) -> RemoteEngine:
        """Starts the engine process of a version, so that several can load at the same time."""
        folder = self._folder(name, version)
        return RemoteEngine(
            partial(self.launch, Setup(folder, self.provider, self.threads, self.limits)),
            self.stall_s,
            label=f"{name}/{version}",
        )

    def load(self, name: str, version: int, engine: RemoteEngine) -> ServedModel:
        """Waits until a version is verified and ready; on failure its process is ended."""
        try:
            return self._load(self._folder(name, version), engine)
        except BaseException:
            engine.discard()
            raise

    def _folder(self, name: str, version: int) -> Path:
        return self.repository / name / str(version)

    def _load(self, folder: Path, engine: RemoteEngine) -> ServedModel:
        check_inside(folder, self.repository)
        manifest = Manifest.read(folder)
        if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        # The only files that this process opens; the engine process checks all of them.
        for name in (FILE, TARGET_FILE):
            if name in manifest.files:
                check_file(folder / name, manifest.files[name])
        tokenizer = Tokenizer.of_artifact(folder, manifest)
        _check_template(manifest, tokenizer)
        _check_generation(manifest)
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


def _check_template(manifest: Manifest, tokenizer: Tokenizer) -> None:
    """Refuses a template whose tokens a vocabulary lacks."""
    template = manifest.template or Template()
    missing = {token for token in template.source_tokens if tokenizer.source_id_of(token) is None}
    missing |= {token for token in template.target_tokens if tokenizer.id_of(token) is None}
    for token in sorted(missing):
        reason = f"template: tokenizer.json has no token {token!r:.80}; import the model again"
        raise ArtifactError(f"{manifest.label}: {reason}")


def _check_generation(manifest: Manifest) -> None:
    """Refuses recommended options that the API does not have."""
    try:
        json_format.ParseDict(manifest.generation, generation_pb2.GenerationOptions())
    except json_format.ParseError as error:
        raise ArtifactError(f"{manifest.label}: generation: {error}") from None
    for name, value in manifest.generation.items():
        declared = DECLARATIONS.get(name)
        if declared and declared.choices and value not in declared.choices:
            reason = f"{name} is {value!r:.80}; it must be {declared.bounds}"
            raise ArtifactError(f"{manifest.label}: generation: {reason}")
