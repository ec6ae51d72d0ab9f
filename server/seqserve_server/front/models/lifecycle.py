"""State machine of a model version: pure rules, without folders, processes or calls.

::

    found ──▶ AVAILABLE ──▶ LOADING ──▶ READY ──▶ DRAINING ──▶ AVAILABLE
                  ▲            │         ▲ │          ▲
                  └─ FAILED ◀──┘         │ ▼          │
                                      RESTARTING ─────┘

:func:`to_load` and :func:`to_drain` decide, from the states of all versions of a model, which ones
to load and which to drain. Callers ask them again after every change. A version without a folder is
removed once it is AVAILABLE or FAILED.
"""

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from enum import Enum

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.front.models.loaded_model import ServedModel


class ModelState(Enum):
    """Whether a version takes calls, with the values of the API."""

    AVAILABLE = "available"
    """In the repository, not loaded."""
    LOADING = "loading"
    READY = "ready"
    RESTARTING = "restarting"
    """Loaded, but its engine has failed and has not proven itself again."""
    DRAINING = "draining"
    """Finishes its calls and takes no new ones."""
    FAILED = "failed"
    """Could not be loaded."""


class Control(Enum):
    """The origin of the decision whether a version is loaded."""

    WATCH = "watch"
    """The repository watch: versions in the folder, limited by ``--keep-versions``."""
    LOADED = "loaded"
    """An administrator, who asked to load it."""
    UNLOADED = "unloaded"
    """An administrator, who asked to unload it."""


_IDLE = (ModelState.AVAILABLE, ModelState.FAILED)
_COMING = (ModelState.AVAILABLE, ModelState.LOADING, ModelState.DRAINING)
_LOADED = (ModelState.READY, ModelState.RESTARTING)
_ACTIVE = (ModelState.LOADING, *_LOADED)
_ORIGINS = {
    ModelState.AVAILABLE: (ModelState.DRAINING, ModelState.FAILED),
    ModelState.LOADING: _IDLE,
    ModelState.READY: (ModelState.LOADING, ModelState.RESTARTING),
    # One that restarts already gets the new reason.
    ModelState.RESTARTING: _LOADED,
    ModelState.DRAINING: _LOADED,
    ModelState.FAILED: (ModelState.LOADING,),
}


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One version of a model in the repository."""

    name: str
    version: int
    state: ModelState = ModelState.AVAILABLE
    reason: str = ""
    """Why it is in this state; may be empty."""
    control: Control = Control.WATCH
    is_present: bool = True
    """Whether its folder exists."""
    files: Hashable = None
    """Fingerprint of its files; None while they change or the manifest is missing."""
    attempted_files: Hashable = None
    """Fingerprint of the files that were last loaded, or that failed to load."""
    on_call: bool = False
    """Whether the first call loads it, so that it takes calls while it is not loaded."""
    model: ServedModel | None = None
    """Set while the version is ready, restarting or draining."""
    described: Manifest | None = None
    """Its manifest, if calls load it."""
    num_bytes: int = 0
    """Memory that it then takes, once it is loaded."""
    read_files: Hashable = None
    """Fingerprint of its files when the manifest was read."""

    @property
    def label(self) -> str:
        """Name for people: ``en-de/1``."""
        return f"{self.name}/{self.version}"

    @property
    def is_ready(self) -> bool:
        """Whether it takes calls: routing, health, metrics and lists all ask this."""
        return self.state is ModelState.READY or (self.on_call and self.state in _COMING)

    @property
    def waits_for_call(self) -> bool:
        """Whether its next call loads it."""
        return self.on_call and self.state is ModelState.AVAILABLE

    @property
    def serving(self) -> ServedModel | None:
        """Its model, if a new call may use it."""
        return None if self.state is ModelState.DRAINING else self.model

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest, if the version is loaded or calls load it."""
        return self.model.manifest if self.model else self.described

    @property
    def is_wanted(self) -> bool:
        """Whether its folder exists and no administrator has unloaded it."""
        return self.is_present and self.control is not Control.UNLOADED

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs for it."""
        return self.state in _IDLE

    @property
    def is_removable(self) -> bool:
        """Whether its folder is gone and nothing runs for it."""
        return not self.is_present and self.is_idle

    def mark_stable(self, files: Hashable) -> None:
        """Records files that are complete and do not change; other files may be tried again."""
        self.is_present, self.files = True, files
        if self.state is ModelState.FAILED and files != self.attempted_files:
            self.move(ModelState.AVAILABLE)
        elif self.state is ModelState.AVAILABLE:
            self.reason = ""

    def mark_unstable(self, reason: str) -> None:
        """Records files that cannot be loaded yet."""
        self.is_present, self.files = True, None
        if self.state is ModelState.AVAILABLE:
            self.reason = reason

    def mark_missing(self) -> None:
        """Records that its folder is gone."""
        self.is_present, self.files = False, None

    def move(self, state: ModelState, reason: str = "") -> None:
        """Moves to another state, as the picture of this module allows."""
        if self.state not in _ORIGINS[state]:
            raise ValueError(f"{self.label} is {self.state.value}: cannot be {state.value}")
        if state is ModelState.LOADING:
            self.attempted_files = self.files
        self.state, self.reason = state, reason

    def follow_engine(self) -> None:
        """Moves between READY and RESTARTING, as its engine fails and proves itself again."""
        if self.model is None or self.state is ModelState.DRAINING:
            return
        engine = self.model.engine
        if not engine.status.is_ready:
            self.move(ModelState.RESTARTING, engine.status.last_error)
        elif not self.is_ready:
            self.move(ModelState.READY)


def to_load(versions: Collection[Entry], keep: int, weighted: Collection[int] = ()) -> list[Entry]:
    """Finds the versions of a model to load, the highest first.

    The ``keep`` highest versions, all with 0, and those with a weight stay loaded.
    """
    active = [version for version in versions if version.state in _ACTIVE and version.is_wanted]
    chosen: list[Entry] = []
    for version in sorted(versions, key=lambda version: -version.version):
        if version.state is not ModelState.AVAILABLE or version.files is None:
            continue
        if version.control is Control.LOADED or (
            version.control is Control.WATCH
            and (version.version in weighted or not _is_outdated(version, (*active, *chosen), keep))
        ):
            chosen.append(version)
    return chosen


def to_drain(versions: Collection[Entry], keep: int, weighted: Collection[int] = ()) -> list[Entry]:
    """Finds the versions of a model to drain.

    Newer versions that are READY replace a version. If the folder of the last one is gone, it stays
    until others have loaded or failed.
    """
    loaded = [version for version in versions if version.state in _LOADED]
    wanted = [
        version for version in loaded if version.state is ModelState.READY and version.is_wanted
    ]
    is_loading = any(version.state is ModelState.LOADING for version in versions)

    def is_due(version: Entry) -> bool:
        if version.control is Control.UNLOADED:
            return True
        if not version.is_present:
            return bool(wanted) or not is_loading
        is_watched = version.control is Control.WATCH and version.version not in weighted
        return is_watched and _is_outdated(version, wanted, keep)

    return [version for version in loaded if is_due(version)]


def _is_outdated(version: Entry, others: Collection[Entry], keep: int) -> bool:
    return bool(keep) and sum(other.version > version.version for other in others) >= keep
