"""Registry of model versions: which exist, which take calls, and which one serves a call."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from hashlib import blake2b
from typing import TypeAlias

from seqserve.errors import OptionError
from seqserve_server.artifact.pairs import Pairs, Translator
from seqserve_server.artifact.records import Template, shared_languages
from seqserve_server.contract import errors
from seqserve_server.contract.errors import truncated_list
from seqserve_server.front.models.lifecycle import Entry, ModelState
from seqserve_server.front.models.loaded_model import ServedModel

Weights: TypeAlias = Mapping[int, int]
"""Traffic weight of each version; a version without an entry has weight 0."""

MAX_WEIGHT = 1_000_000

_RETRYABLE = {
    ModelState.LOADING: "is loading; call again soon",
    ModelState.DRAINING: "is being unloaded; call another version",
}


class Repository:
    """The known versions, by name and number; used in the event loop."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._versions: dict[str, dict[int, Entry]] = {}
        self.traffic: dict[str, Weights] = {}
        """The weights that were set, by model."""
        self._pairs = Pairs(())
        self._paired: list[tuple[str, list[Template | None]]] = []
        self.default = ""
        """Model of calls that name none; empty if calls must name one."""
        self.is_closed = False
        """Whether the server shuts down; then no new call gets a version."""
        self.load_on_call: Callable[[Entry, str], Awaitable[None]]
        """Awaited by a call of a client whose version is on call; set where versions are."""
        for entry in entries:
            self.add(entry)

    def choose_default(self, default: str = "", named_by: str = "--default-model") -> None:
        """Sets the default model, after the first models were loaded.

        Without a name it is the only model that is ready, or none. ``named_by`` is the option or
        the file that named it.
        """
        ready = sorted({entry.name for entry in self.entries if entry.is_ready})
        if not ready:
            reasons = [
                f"\n  {entry.label}: {entry.reason.removeprefix(f'{entry.label}: ')}"
                for entry in self.entries
            ]
            raise errors.StartupError("no model can be served:" + "".join(reasons))
        if default and default not in ready:
            raise OptionError(
                f"{named_by}: {default!r} is not ready; available: {', '.join(ready)}"
            )
        self.default = default or (ready[0] if len(ready) == 1 else "")

    @property
    def entries(self) -> list[Entry]:
        """All versions, sorted by name and number; may be read from any thread."""
        entries = [
            entry
            for versions in self._versions.copy().values()
            for entry in versions.copy().values()
        ]
        return sorted(entries, key=lambda entry: (entry.name, entry.version))

    @property
    def is_ready(self) -> bool:
        """Whether any version takes calls."""
        return any(entry.is_ready for entry in self.entries)

    def names(self) -> list[str]:
        """Lists the names of the models."""
        return sorted(self._versions)

    def versions(self, name: str) -> list[Entry]:
        """Lists the versions of a model."""
        entries = self._versions.get(name, {})
        return [entries[number] for number in sorted(entries)]

    def entry(self, name: str, version: int, reason: str = "") -> Entry:
        """Returns a version; one that is not known yet is added."""
        known = self._versions.setdefault(name, {})
        return known.setdefault(version, Entry(name=name, version=version, reason=reason))

    def add(self, entry: Entry) -> None:
        """Adds a version."""
        self._versions.setdefault(entry.name, {})[entry.version] = entry

    def remove(self, entry: Entry) -> None:
        """Removes a version."""
        versions = self._versions[entry.name]
        del versions[entry.version]
        if not versions:
            del self._versions[entry.name]

    def models(self) -> list[ServedModel]:
        """Lists the loaded versions, including those that drain."""
        return [entry.model for entry in self.entries if entry.model]

    def find(self, name: str, version: int = 0) -> Entry:
        """Finds a version by name and number, whatever its state.

        An empty name is the default. Version 0 is the highest ready one, or the highest of all.
        """
        entries = self._matching(name, version)
        return max(entries, key=lambda entry: (entry.is_ready, entry.version))

    def choose(self, name: str, version: int, key: str) -> Entry:
        """Finds the version that serves a call; it may have to be loaded first.

        An empty name is the default. Version 0 is a ready one, or one that restarts while its
        engine runs; calls of equal keys get the same one, by the traffic weights.
        """
        entries = self._matching(name, version)
        best = {each.version: each for each in _best(entries) if each.model or each.is_ready}
        if not best:
            raise _unready_error(entries)
        return best[choose_version(self._weights(entries[0].name), best, key)]

    @property
    def pairs(self) -> Pairs:
        """The pairs of languages of calls without a model; all its versions know them."""
        paired = [
            (name, templates) for name in self._versions if (templates := self._templates(name))
        ]
        if paired != self._paired:
            self._paired = paired
            translators = [
                Translator(name, shared_languages(templates)) for name, templates in paired
            ]
            self._pairs = Pairs(translators, self.default)
        return self._pairs

    def _templates(self, name: str) -> list[Template | None]:
        versions = self._versions[name].values()
        # One that calls load keeps its languages until it can be loaded again.
        failed = [each for each in versions if each.described and each.state is ModelState.FAILED]
        entries = _best(list(versions)) or failed
        known = {entry.version: entry.manifest for entry in entries if entry.manifest}
        return [known[version].template for version in traffic_shares(self._weights(name), known)]

    def share(self, entry: Entry) -> float:
        """Returns the share, 0 to 1, that an entry gets of the calls that name no version."""
        ready = [other.version for other in self.versions(entry.name) if other.is_ready]
        return traffic_shares(self._weights(entry.name), ready).get(entry.version, 0.0)

    def weighted(self, name: str) -> list[int]:
        """Lists the versions of a model that have a traffic weight."""
        return [version for version, weight in self._weights(name).items() if weight]

    def set_traffic(self, name: str, weights: Weights) -> list[Entry]:
        """Divides calls that name no version; without weights the highest ready gets all."""
        entries = self._matching(name, 0)
        if error := weights_error(weights):
            raise errors.InvalidRequest("weights", error)
        for version in weights:
            self._matching(name, version)
        name = entries[0].name
        self.traffic[name] = dict(weights)
        return self.versions(name)

    def _weights(self, name: str) -> Weights:
        return self.traffic.get(name, {})

    def _matching(self, name: str, version: int) -> list[Entry]:
        wanted = name or self.default
        versions = self._versions.get(wanted, {})
        entries = [entry for number, entry in versions.items() if version in (0, number)]
        if not entries:
            known = truncated_list(entry.label for entry in self.entries)
            raise errors.ModelNotFound(f"{_unknown(wanted, version)}; available: {known}")
        return entries


def _best(entries: list[Entry]) -> list[Entry]:
    # If none is ready, those whose engine restarts, and of them those that still run.
    if ready := [entry for entry in entries if entry.is_ready]:
        return ready
    restarting = [entry for entry in entries if entry.state is ModelState.RESTARTING]
    running = [entry for entry in restarting if entry.model and entry.model.engine.status.is_up]
    return running or restarting


def _unknown(name: str, version: int) -> str:
    if not name:
        return "name a model (--model): the server has several and no --default-model"
    # A client may send a name as long as a message.
    shown = name if len(name) <= errors.MAX_NAME else name[: errors.MAX_NAME] + "…"
    unknown = f"no model {shown!r}" + (f" of version {version}" if version else "")
    # A label, as logs and errors show it, may have been sent instead of a name.
    model, _, number = shown.rpartition("/")
    is_label = model and number.isdecimal()
    return unknown + (f" (name {model!r}, and set version {number} separately)" * bool(is_label))


def _unready_error(entries: list[Entry]) -> errors.ServiceError:
    # A retry makes sense only if a version is loading or draining.
    for state in _RETRYABLE:
        for entry in entries:
            if entry.state is state:
                return errors.ModelUnavailable(f"{entry.label} {_RETRYABLE[state]}")
    entry = max(entries, key=lambda entry: entry.version)
    label, command = entry.label, f"seqserve models load {entry.name} {entry.version}"
    if entry.state is ModelState.FAILED:
        return errors.ModelNotLoaded(f"{label} could not be loaded: {entry.reason}")
    return errors.ModelNotLoaded(f"{label} is not loaded; LoadModel, or `{command}`, loads it")


def traffic_shares(weights: Weights, ready: Collection[int]) -> dict[int, float]:
    """Computes the share of each ready version; all of it is the highest one's without weights."""
    weighted = _weighted(weights, ready)
    total = sum(weight for _, weight in weighted)
    return {version: weight / total for version, weight in weighted}


def choose_version(weights: Weights, ready: Collection[int], key: str) -> int:
    """Chooses one of the ready versions by weight; a hash of the key is the random number."""
    weighted = _weighted(weights, ready)
    if len(weighted) > 1:
        digest = blake2b(key.encode(), digest_size=8).digest()
        rest = int.from_bytes(digest, "big") % sum(weight for _, weight in weighted)
        for version, weight in weighted[:-1]:
            rest -= weight
            if rest < 0:
                return version
    return weighted[-1][0]


def _weighted(weights: Weights, ready: Collection[int]) -> list[tuple[int, int]]:
    weighted = [(version, weights[version]) for version in sorted(ready) if weights.get(version)]
    return weighted or [(version, 1) for version in [max(ready, default=0)] if version]


def weights_error(weights: Weights) -> str:
    """Describes what is wrong with weights; empty if they are valid."""
    if any(version < 1 for version in weights):
        return "versions begin at 1"
    if any(not 0 <= weight <= MAX_WEIGHT for weight in weights.values()):
        return f"a weight is from 0 to {MAX_WEIGHT}"
    if weights and not any(weights.values()):
        return "all weights are 0; give one version more"
    return ""
