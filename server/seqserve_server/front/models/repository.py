"""The models of a server: which versions there are, which take calls, and which a call means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from seqserve.errors import OptionError
from seqserve_server.contract.errors import (
    InvalidRequest,
    ModelNotFound,
    ModelNotLoaded,
    ModelUnavailable,
    ServiceError,
    StartupError,
)
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.models.active_calls import ActiveCalls
from seqserve_server.front.models.lifecycle import ModelState, Version
from seqserve_server.front.models.traffic import Weights, chosen, portions, wrong_with

# How many versions, and how many characters of an unknown name, an error repeats.
_MOST_LABELS = 20
_MOST_NAME = 64

_ON_THE_WAY = {
    ModelState.LOADING: "is loading; call again soon",
    ModelState.DRAINING: "is being unloaded; call another version",
}


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True, eq=False)
class ServedModel:
    """A loaded version and what serves it."""

    manifest: Manifest
    tokenizer: Tokenizer
    engine: RemoteEngine
    provider: Provider
    calls: ActiveCalls = field(default_factory=ActiveCalls)
    """Those that have been given this version; it is there until they have ended."""


@dataclass(slots=True, kw_only=True, eq=False)
class Entry(Version):
    """A version, and what serves it where it is loaded."""

    model: ServedModel | None = None
    """There while it is ready or drains."""

    @property
    def is_up(self) -> bool:
        """Whether it takes calls, and its engine is there for them."""
        return self.state is ModelState.READY and self.model is not None and self.model.engine.is_up


class Repository:
    """The versions that are known, and how calls find theirs. Lives in the event loop."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        """Takes versions that are known already."""
        self._versions: dict[str, dict[int, Entry]] = {}
        self._traffic: dict[str, Weights] = {}
        self.default = ""
        """Name of the model that calls mean which name none; empty where they must name one."""
        self.is_closed = False
        """Whether the server shuts down, and no new call is given a version."""
        for entry in entries:
            self.add(entry)

    def choose_default(self, default: str = "") -> None:
        """Decides which model is the default, once the first ones were loaded.

        A model that comes later does not change what calls without a name mean.

        Args:
            default: Name of it; the only model where empty.

        Raises:
            StartupError: Nothing is ready.
            OptionError: The default is not.
        """
        ready = sorted({entry.name for entry in self.entries if entry.state is ModelState.READY})
        if not ready:
            reasons = "".join(f"\n  {entry.label}: {entry.reason}" for entry in self.entries)
            raise StartupError(f"no model can be served:{reasons}")
        if default and default not in ready:
            raise OptionError(
                f"--default-model: {default!r} is not ready; there are {', '.join(ready)}"
            )
        self.default = default or (ready[0] if len(ready) == 1 else "")

    @property
    def entries(self) -> list[Entry]:
        """All versions, by name and number; from any thread."""
        found = [
            entry
            for versions in self._versions.copy().values()
            for entry in versions.copy().values()
        ]
        return sorted(found, key=lambda entry: (entry.name, entry.version))

    def names(self) -> list[str]:
        """Lists the models."""
        return sorted(self._versions)

    def versions(self, name: str) -> list[Entry]:
        """Lists the versions of a model."""
        found = self._versions.get(name, {})
        return [found[number] for number in sorted(found)]

    def add(self, entry: Entry) -> None:
        """Takes one more version."""
        self._versions.setdefault(entry.name, {})[entry.version] = entry

    def remove(self, entry: Entry) -> None:
        """Forgets a version."""
        versions = self._versions[entry.name]
        del versions[entry.version]
        if not versions:
            del self._versions[entry.name]

    def models(self) -> list[ServedModel]:
        """Lists what is loaded, what drains too."""
        return [entry.model for entry in self.entries if entry.model]

    def find(self, name: str, version: int = 0) -> Entry:
        """Finds the version that a caller asks about.

        Args:
            name: Of the model; empty for the default.
            version: 0 for the highest one that is ready, or of all where none is.

        Raises:
            ModelNotFound: There is none; the message lists those there are.
        """
        found = self._found(name, version)
        return max(found, key=lambda entry: (entry.state is ModelState.READY, entry.version))

    def resolve(self, name: str, version: int, key: str) -> ServedModel:
        """Finds the version that serves a call; whoever keeps it counts in its ``calls``.

        Args:
            name: Of the model; empty for the default.
            version: 0 for one that traffic chooses.
            key: Of the call; equal ones are given equal versions.

        Raises:
            ModelNotFound: There is none.
            ModelUnavailable: It is not ready, but may soon be.
            ModelNotLoaded: It is not ready, and waiting does not help.
        """
        found = self._found(name, version)
        ready = {
            entry.version: entry.model
            for entry in found
            if entry.model and entry.state is ModelState.READY
        }
        if not ready:
            raise _why_not(found)
        if len(ready) == 1:
            return next(iter(ready.values()))
        return ready[chosen(self._weights(found[0].name), ready, key)]

    def share(self, entry: Entry) -> float:
        """Gives the part of the calls without a version that come to one."""
        ready = [
            other.version for other in self.versions(entry.name) if other.state is ModelState.READY
        ]
        return portions(self._weights(entry.name), ready).get(entry.version, 0.0)

    def shared(self, name: str) -> list[int]:
        """Lists the versions of a model that were given a weight."""
        return [version for version, weight in self._weights(name).items() if weight]

    def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Shares the calls that name no version.

        Args:
            name: Of the model; empty for the default.
            weights: By version; empty for all calls to the highest one that is ready.

        Returns:
            All versions of the model.

        Raises:
            ModelNotFound: The model or a version is not there.
            InvalidRequest: The weights make no sense.
        """
        found = self._found(name, 0)
        if wrong := wrong_with(weights):
            raise InvalidRequest("weights", wrong)
        for version in weights:
            self._found(name, version)
        name = found[0].name
        self._traffic[name] = dict(weights)
        return self.versions(name)

    def _weights(self, name: str) -> Weights:
        return self._traffic.get(name, {})

    def _found(self, name: str, version: int) -> list[Entry]:
        wanted = name or self.default
        versions = self._versions.get(wanted, {})
        if version:
            entry = versions.get(version)
            found = [entry] if entry else []
        else:
            found = list(versions.values())
        if not found:
            raise ModelNotFound(f"{_unknown(wanted, version)}; there are {self._labels()}")
        return found

    def _labels(self) -> str:
        labels = [entry.label for entry in self.entries]
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        return ", ".join(labels[:_MOST_LABELS]) + more


def _unknown(name: str, version: int) -> str:
    if not name:
        return "name a model (--model): the server has several and no --default-model"
    # The name is the caller's, as long as a message may be.
    asked = name if len(name) <= _MOST_NAME else name[:_MOST_NAME] + "…"
    return f"no model {asked!r}" + (f" of version {version}" if version else "")


def _why_not(entries: list[Entry]) -> ServiceError:
    """Gives what a call gets where none of these versions is ready.

    Those on the way are worth another try; what failed is not before somebody has mended it.
    """
    for state in _ON_THE_WAY:
        for entry in entries:
            if entry.state is state:
                return ModelUnavailable(f"{entry.label} {_ON_THE_WAY[state]}")
    entry = max(entries, key=lambda entry: entry.version)
    if entry.state is ModelState.FAILED:
        return ModelNotLoaded(f"{entry.label} could not be loaded; see GetModel")
    return ModelNotLoaded(f"{entry.label} is not loaded; LoadModel loads it")
