"""The life of a version, as a state machine that knows nothing of folders, processes or calls.

::

    found ──▶ AVAILABLE ──▶ LOADING ──▶ READY ──▶ DRAINING ──▶ AVAILABLE
                  ▲            │
                  └─ FAILED ◀──┘

A version whose folder has vanished is gone once it is AVAILABLE or FAILED. What is to be loaded and
what is to be drained follows from the states of a model's versions; :func:`to_load` and
:func:`to_drain` tell it, and are asked again after every change.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from enum import Enum


class ModelState(Enum):
    """Whether a version can be called; the names of the wire."""

    AVAILABLE = "available"
    """In the repository, not loaded."""
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    """Finishes the calls that it has."""
    FAILED = "failed"
    """Could not be loaded."""


class Control(Enum):
    """Who decides whether a version is loaded."""

    WATCH = "watch"
    """The repository: what lies there, and how many versions are kept."""
    LOADED = "loaded"
    """Somebody who asked for it to be loaded."""
    UNLOADED = "unloaded"
    """Somebody who asked for it to be unloaded."""


_IDLE = (ModelState.AVAILABLE, ModelState.FAILED)
_COMING = (ModelState.LOADING, ModelState.READY)


@dataclass(slots=True, kw_only=True, eq=False)
class Version:
    """One version of a model."""

    name: str
    version: int
    state: ModelState = ModelState.AVAILABLE
    reason: str = ""
    """Why it is in its state, where there is more to say."""
    control: Control = Control.WATCH
    is_there: bool = True
    """Whether its folder is."""
    files: Hashable = None
    """Stands for the content of its folder; None while that changes or lacks something."""
    tried: Hashable = None
    """What stood for it when it failed."""

    @property
    def label(self) -> str:
        """How people name it: ``en-de/1``."""
        return f"{self.name}/{self.version}"

    @property
    def stays(self) -> bool:
        """Whether nothing speaks against it: its folder is there, and nobody has unloaded it."""
        return self.is_there and self.control is not Control.UNLOADED

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it is left."""
        return not self.is_there and self.state in _IDLE

    def lies_still(self, files: Hashable) -> None:
        """Notes a folder that is whole and does not change; one that failed gets another chance."""
        self.is_there, self.files = True, files
        if self.state is ModelState.FAILED and files != self.tried:
            self.forgive()
        elif self.state is ModelState.AVAILABLE:
            self.reason = ""

    def changes(self, reason: str) -> None:
        """Notes a folder that is not to be loaded yet."""
        self.is_there, self.files = True, None
        if self.state is ModelState.AVAILABLE:
            self.reason = reason

    def vanishes(self) -> None:
        """Notes that its folder is no longer there."""
        self.is_there, self.files = False, None

    def begin(self) -> None:
        """Begins to load."""
        self._move(ModelState.LOADING, *_IDLE)
        self.tried = self.files

    def succeed(self) -> None:
        """Takes calls from now on."""
        self._move(ModelState.READY, ModelState.LOADING)

    def fail(self, reason: str) -> None:
        """Could not be loaded."""
        self._move(ModelState.FAILED, ModelState.LOADING, reason=reason)

    def forgive(self) -> None:
        """Forgets that it failed."""
        self._move(ModelState.AVAILABLE, ModelState.FAILED)

    def drain(self) -> None:
        """Takes no new calls."""
        self._move(ModelState.DRAINING, ModelState.READY)

    def end(self) -> None:
        """Has finished its calls, and nothing runs for it."""
        self._move(ModelState.AVAILABLE, ModelState.DRAINING)

    def _move(self, state: ModelState, *origins: ModelState, reason: str = "") -> None:
        if self.state not in origins:
            raise ValueError(f"{self.label} is {self.state.value}: cannot be {state.value}")
        self.state, self.reason = state, reason


def to_load(
    versions: Collection[Version], keep: int, shared: Collection[int] = ()
) -> list[Version]:
    """Finds the versions of a model that are to be loaded, the highest first.

    Args:
        versions: All of them.
        keep: How many of the highest are kept; 0 for all. One that fails makes room for an older
            one.
        shared: Versions that were given a share of the calls; they are kept whatever their age.
    """
    coming = [version for version in versions if version.state in _COMING and version.stays]
    found: list[Version] = []
    for version in sorted(versions, key=lambda version: -version.version):
        if version.state is not ModelState.AVAILABLE or version.files is None:
            continue
        if version.control is Control.LOADED or (
            version.control is Control.WATCH
            and (not _is_old(version, (*coming, *found), keep) or version.version in shared)
        ):
            found.append(version)
    return found


def to_drain(
    versions: Collection[Version], keep: int, shared: Collection[int] = ()
) -> list[Version]:
    """Finds the versions of a model that are to take no new calls.

    A version gives way only to newer ones that are ready; and the last one, where its folder has
    vanished, stays until what is loading has come or failed.

    Args:
        versions: All of them.
        keep: How many of the highest are kept; 0 for all.
        shared: Versions that were given a share of the calls.
    """
    ready = [version for version in versions if version.state is ModelState.READY]
    staying = [version for version in ready if version.stays]
    is_loading = any(version.state is ModelState.LOADING for version in versions)

    def is_due(version: Version) -> bool:
        if version.control is Control.UNLOADED:
            return True
        if not version.is_there:
            return bool(staying) or not is_loading
        is_watched = version.control is Control.WATCH and version.version not in shared
        return is_watched and _is_old(version, staying, keep)

    return [version for version in ready if is_due(version)]


def _is_old(version: Version, others: Collection[Version], keep: int) -> bool:
    """Whether as many as are kept are newer."""
    return bool(keep) and sum(other.version > version.version for other in others) >= keep
