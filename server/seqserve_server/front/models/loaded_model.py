"""A loaded version of a model, and what the front reads of its artifact."""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqserve_server.artifact.files import check_file
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.records import Template
from seqserve_server.contract.bounds import check_recommended
from seqserve_server.contract.errors import ArtifactError, InvalidRequest
from seqserve_server.contract.limits import Provider
from seqserve_server.front.engine_client.engine import AnsweringEngine, ServingEngine
from seqserve_server.front.models.answer_cache import VersionAnswers
from seqserve_server.text.tokenizer import FILE, TARGET_FILE, Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedModel:
    """One version of a model: its manifest, tokenizer and engine."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: AnsweringEngine
    answers: VersionAnswers | None = None
    """Its cached answers; None if answers are not cached."""
    known_options: dict[bytes, Any] = field(default_factory=dict)
    """Compiled options of recent requests, by how they were sent."""


class ActiveCalls:
    """Counts calls in progress and wakes tasks that wait for the last one; for the event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.idle_since_s = time.monotonic()
        """When the last call ended, or last noted that it needs this version."""

    def touch(self) -> None:
        """Notes a call that needs this version, and does not have it yet."""
        self.idle_since_s = time.monotonic()

    def enter(self) -> None:
        """Counts a call that begins."""
        self._count += 1
        self._idle.clear()

    def leave(self) -> None:
        """Counts a call that has ended."""
        self._count -= 1
        if not self._count:
            self._idle.set()
            self.touch()

    @property
    def are_idle(self) -> bool:
        """Whether no call is in progress."""
        return not self._count

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

    engine: ServingEngine
    provider: Provider
    calls: ActiveCalls = field(default_factory=ActiveCalls)
    """Calls that were given this version; it stays loaded until they have ended."""


def read_tokenizer(folder: Path, manifest: Manifest) -> Tokenizer:
    """Reads the tokenizer of an artifact, and checks that it fits the manifest."""
    # The only files that are opened here; the engine checks all of them.
    for name in (FILE, TARGET_FILE):
        if name in manifest.files:
            check_file(folder / name, manifest.files[name])
    tokenizer = Tokenizer.of_artifact(folder, manifest)
    # Computed here, where no call waits for it.
    _ = tokenizer.alphabet
    # A tokenizer that can only fail would fail every call.
    tokenizer.decode(tokenizer.encode_target("a"))
    tokenizer.encode("a")
    template = manifest.template or Template()
    missing = {token for token in template.source_tokens if tokenizer.source.id_of(token) is None}
    missing |= {token for token in template.target_tokens if tokenizer.target.id_of(token) is None}
    for token in sorted(missing):
        reason = f"template: tokenizer.json has no token {token!r:.80}; import the model again"
        raise ArtifactError(f"{manifest.label}: {reason}")
    try:
        check_recommended(manifest.generation)
    except InvalidRequest as error:
        raise ArtifactError(f"{manifest.label}: generation: {error}") from None
    return tokenizer
