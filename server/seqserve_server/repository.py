"""The models of a server: which versions there are, which are sound, and which a call means."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from seqserve.errors import OptionError, SeqserveError
from seqserve_server import logs
from seqserve_server.engine.limits import EngineLimits
from seqserve_server.engine.mail import Setup
from seqserve_server.engine.remote import HostProcess, RemoteEngine
from seqserve_server.errors import (
    ArtifactError,
    ModelNotFound,
    ModelUnavailable,
    ProviderError,
    StartupError,
)
from seqserve_server.manifest import Manifest, check_file
from seqserve_server.metrics import Metrics
from seqserve_server.provider import Provider
from seqserve_server.tokenizer import Tokenizer

# Of the models there are, and of a name that is none of them, as much as an answer can carry.
_MOST_LABELS = 20
_MOST_NAME = 64

_log = logging.getLogger(__name__)


class ModelState(Enum):
    """Whether a version can be called."""

    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A loaded version and what serves it."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: RemoteEngine
    provider: Provider


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A version found in the repository, sound or not."""

    name: str
    version: int
    state: ModelState
    reason: str = ""
    model: ServedModel | None = None

    @property
    def label(self) -> str:
        """How people name it: ``en-de/1``."""
        return f"{self.name}/{self.version}"


class Repository:
    """The versions of a folder ``<name>/<version>/``, loaded once at start."""

    def __init__(self, entries: list[Entry], default: str = "") -> None:
        """Takes what was loaded.

        Args:
            entries: All versions found.
            default: Name of the model that calls mean which name none.

        Raises:
            StartupError: Nothing is sound.
            OptionError: The default is not among what is sound.
        """
        self.entries = sorted(entries, key=lambda entry: (entry.name, entry.version))
        ready = sorted({entry.name for entry in self.entries if entry.model})
        if not ready:
            reasons = "".join(f"\n  {entry.label}: {entry.reason}" for entry in self.entries)
            raise StartupError(f"no model can be served:{reasons}")
        if default and default not in ready:
            raise OptionError(
                f"--default-model: {default!r} is not ready; there are {', '.join(ready)}"
            )
        self.default = default or (ready[0] if len(ready) == 1 else "")

    def models(self) -> list[ServedModel]:
        """Lists what is loaded."""
        return [entry.model for entry in self.entries if entry.model]

    def find(self, name: str, version: int = 0) -> Entry:
        """Finds the version that a call means.

        Args:
            name: Of the model; empty for the default.
            version: 0 for the highest one that is sound.

        Raises:
            ModelNotFound: There is none; the message lists those there are.
        """
        wanted = name or self.default
        found = [
            entry
            for entry in self.entries
            if entry.name == wanted and version in (0, entry.version)
        ]
        if not found:
            raise ModelNotFound(f"{_unknown(wanted, version)}; there are {self._labels()}")
        return max(found, key=lambda entry: (entry.model is not None, entry.version))

    def resolve(self, name: str, version: int = 0) -> ServedModel:
        """Finds the loaded version that a call means.

        Raises:
            ModelNotFound: There is none.
            ModelUnavailable: It could not be loaded.
        """
        entry = self.find(name, version)
        if entry.model is None:
            raise ModelUnavailable(f"{entry.label} could not be loaded; see GetModel")
        return entry.model

    def _labels(self) -> str:
        labels = [entry.label for entry in self.entries]
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        return ", ".join(labels[:_MOST_LABELS]) + more


def _unknown(name: str, version: int) -> str:
    if not name:
        return "name a model: there is no default"
    # The name is the caller's, as long as a message may be.
    asked = name if len(name) <= _MOST_NAME else name[:_MOST_NAME] + "…"
    return f"no model {asked!r}" + (f" of version {version}" if version else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loader:
    """Turns folders into served models."""

    provider: Provider
    threads: int
    limits: EngineLimits
    launch: Callable[[Setup], HostProcess]
    metrics: Metrics

    def load(self, repository: Path, default: str = "") -> Repository:
        """Loads every version of every model; a broken one is noted and left out.

        Raises:
            OptionError: The folder is not there, or the default is not among its models.
            StartupError: No model in it is sound, or the caches do not fit.
            ProviderError: The execution provider is not available.
        """
        if not repository.is_dir():
            raise OptionError(f"--model-repository: {repository} is not a folder")
        folders = _versions(repository)
        if not folders:
            raise StartupError(
                f"--model-repository: {repository} holds no <name>/<version>/ folder;"
                " `seqserve export` makes one"
            )
        engines = [RemoteEngine(partial(self.launch, self._setup(folder))) for folder in folders]
        try:
            entries = [
                self._entry(folder, engine) for folder, engine in zip(folders, engines, strict=True)
            ]
            return Repository(entries, default)
        except BaseException:
            for engine in engines:
                engine.discard()
            raise

    def _setup(self, folder: Path) -> Setup:
        return Setup(folder, self.provider, self.threads, self.limits)

    def _entry(self, folder: Path, engine: RemoteEngine) -> Entry:
        name, version = folder.parent.name, int(folder.name)
        began_s = time.perf_counter()
        try:
            model = self._model(folder, engine)
        except (ProviderError, StartupError):
            # The server's, not this model's: another would fare no better.
            raise
        except SeqserveError as error:
            engine.discard()
            return self._failed(folder, str(error))
        except Exception as error:
            # What a broken tokenizer makes a library raise must not keep sound ones from service.
            _log.error("model %s/%d", name, version, exc_info=error)
            engine.discard()
            reason = f"{folder}: cannot be read: {type(error).__name__}: {error}"
            return self._failed(folder, reason)
        manifest = model.manifest
        self.metrics.model_loaded(name, version, manifest.precision, self.provider.value)
        loaded = {
            "model": manifest.label,
            "precision": manifest.precision,
            "provider": self.provider.value,
            "seconds": time.perf_counter() - began_s,
            "slots": model.engine.slots,
            "cache_bytes": model.engine.cache_bytes,
        }
        logs.event("model loaded", loaded)
        return Entry(name=name, version=version, state=ModelState.READY, model=model)

    def _failed(self, folder: Path, reason: str) -> Entry:
        self.metrics.model_failed()
        name, version = folder.parent.name, int(folder.name)
        # Callers see it: where the repository lies on this machine is not for them.
        reason = reason.replace(f"{folder.parent.parent}{os.sep}", "")
        failure = {"model": f"{name}/{version}", "reason": reason}
        logs.event("model failed", failure, logging.ERROR)
        return Entry(name=name, version=version, state=ModelState.FAILED, reason=reason)

    def _model(self, folder: Path, engine: RemoteEngine) -> ServedModel:
        manifest = Manifest.read(folder)
        if (manifest.name, str(manifest.version)) != (folder.parent.name, folder.name):
            raise ArtifactError(
                f"{folder}: its manifest is of {manifest.label}; name the folder like that"
            )
        # The one file that is opened here; the engine's process checks all of them.
        check_file(folder / "tokenizer.json", manifest.files["tokenizer.json"])
        tokenizer = Tokenizer.load(folder / "tokenizer.json")
        if tokenizer.vocabulary_size > manifest.architecture.vocabulary_size:
            raise ArtifactError(f"{folder}: tokenizer.json has more words than the model")
        engine.load()
        self.metrics.add_engine(manifest.name, engine)
        return ServedModel(
            manifest=manifest, tokenizer=tokenizer, engine=engine, provider=self.provider
        )


def _versions(repository: Path) -> list[Path]:
    return sorted(
        folder
        for folder in repository.glob("*/*")
        if re.fullmatch(r"[1-9][0-9]{0,8}", folder.name)
        and folder.is_dir()
        # What editors, file systems and copies under way keep for themselves.
        and not folder.parent.name.startswith(".")
        # Bytes that are no text could not be listed.
        and folder.parent.name.isprintable()
    )
