"""Invariants of versions under any sequence of file changes, loads, unloads and failures."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.examples import examples

from seqserve_server.contract.errors import ModelNotFound, ModelNotLoaded, ModelUnavailable
from seqserve_server.front.models.lifecycle import Control, Entry, ModelState, to_drain, to_load
from seqserve_server.front.models.repository import Repository

NUMBERS = st.integers(1, 5)
LOADING, READY, DRAINING = ModelState.LOADING, ModelState.READY, ModelState.DRAINING
RESTARTING = ModelState.RESTARTING
IDLE = (ModelState.AVAILABLE, ModelState.FAILED)


class Engine:
    is_up = is_ready = True
    last_error = "its engine has failed"

    @property
    def status(self) -> Engine:
        return self


class Model:
    def __init__(self) -> None:
        self.engine = Engine()


class Rollouts(RuleBasedStateMachine):
    """A rollout without processes: the state machine decides when loads and drains end.

    The folder is a dictionary from versions to the number of their content; even ones are sound.
    """

    def __init__(self) -> None:
        super().__init__()
        self.repository = Repository()
        self.folder: dict[int, int] = {}
        self.keep = 0

    @property
    def entries(self) -> list[Entry]:
        return self.repository.entries

    def of(self, number: int) -> Entry | None:
        return next((entry for entry in self.entries if entry.version == number), None)

    def in_state(self, *states: ModelState) -> list[Entry]:
        return [entry for entry in self.entries if entry.state in states]

    def act(self) -> None:
        weighted = self.repository.weighted("m")
        for version in to_load(self.entries, self.keep, weighted):
            assert version.control is not Control.UNLOADED and version.is_present
            version.move(ModelState.LOADING)
        sound = {entry for entry in self.in_state(READY) if entry.is_wanted}
        drained = to_drain(self.entries, self.keep, weighted)
        for version in drained:
            version.move(ModelState.DRAINING)
        # Only newer ready versions may replace a version.
        if sound:
            assert sound - set(drained), "the last sound version was taken away"
        for entry in self.entries:
            if entry.is_removable:
                self.repository.remove(entry)

    def end_work(self, entry: Entry) -> None:
        """Ends the load or the drain of a version."""
        if entry.state is DRAINING:
            entry.model = None
            entry.move(ModelState.AVAILABLE)
        elif self.folder.get(entry.version, 1) % 2 == 0:
            entry.model = Model()  # type: ignore[assignment]
            entry.move(READY)
        else:
            entry.move(ModelState.FAILED, "broken")

    @initialize(keep=st.integers(0, 3))
    def begin(self, keep: int) -> None:
        self.keep = keep

    @rule(number=NUMBERS, content=st.integers(0, 3))
    def write(self, number: int, content: int) -> None:
        self.folder[number] = content

    @rule(number=NUMBERS)
    def delete(self, number: int) -> None:
        self.folder.pop(number, None)

    @rule()
    def scan(self) -> None:
        for number, content in self.folder.items():
            entry = self.of(number)
            if entry is None:
                entry = Entry(name="m", version=number)
                self.repository.add(entry)
            entry.mark_stable(content)
        for entry in self.entries:
            if entry.version not in self.folder:
                entry.mark_missing()
        self.act()

    @precondition(lambda self: self.in_state(LOADING, DRAINING))
    @rule(data=st.data())
    def load_or_drain_ends(self, data: st.DataObject) -> None:
        self.end_work(data.draw(st.sampled_from(self.in_state(LOADING, DRAINING))))
        self.act()

    @precondition(lambda self: self.in_state(READY, RESTARTING))
    @rule(data=st.data(), is_up=st.booleans(), is_ready=st.booleans())
    def engine_changes(self, data: st.DataObject, is_up: bool, is_ready: bool) -> None:
        entry = data.draw(st.sampled_from(self.in_state(READY, RESTARTING)))
        assert entry.model is not None
        engine: Any = entry.model.engine
        engine.is_up, engine.is_ready = is_up, is_up and is_ready
        entry.follow_engine()
        assert entry.is_ready is engine.is_ready

    @rule(number=NUMBERS)
    def load_by_hand(self, number: int) -> None:
        entry = self.of(number)
        if entry and entry.state is not DRAINING:
            entry.control = Control.LOADED
            if entry.state in IDLE:
                entry.move(ModelState.LOADING)

    @rule(number=NUMBERS)
    def unload_by_hand(self, number: int) -> None:
        if entry := self.of(number):
            entry.control = Control.UNLOADED
            self.act()

    @rule(weights=st.dictionaries(NUMBERS, st.integers(0, 3)))
    def set_traffic(self, weights: dict[int, int]) -> None:
        known = {number: weight for number, weight in weights.items() if self.of(number)}
        if self.entries and (not known or any(known.values())):
            self.repository.set_traffic("m", known)
            self.act()

    @invariant()
    def a_call_gets_what_is_ready_or_else_what_restarts(self) -> None:
        for number in range(6):
            meant = [entry for entry in self.entries if number in (0, entry.version)]
            ready = [entry.model for entry in meant if entry.state is READY]
            restarting = [entry.model for entry in meant if entry.state is RESTARTING]
            try:
                assert self.repository.choose("m", number, "key").model in (ready or restarting)
            except (ModelNotFound, ModelNotLoaded, ModelUnavailable):
                assert not ready and not restarting

    @invariant()
    def shares_add_up(self) -> None:
        shares = [self.repository.share(entry) for entry in self.entries]
        assert abs(sum(shares) - bool(self.in_state(READY))) < 1e-9

    def teardown(self) -> None:
        """Lets all restarts, loads and drains end, then checks the final states."""
        for entry in self.in_state(RESTARTING):
            entry.move(ModelState.READY)
        self.scan()
        while busy := self.in_state(LOADING, DRAINING):
            for entry in busy:
                self.end_work(entry)
            self.scan()
        assert {entry.version for entry in self.entries} == set(self.folder)
        sound = [
            entry
            for entry in self.entries
            if entry.control is not Control.UNLOADED
            and (entry.state is READY or entry.state is ModelState.AVAILABLE)
        ]
        newest = sorted(sound, key=lambda entry: -entry.version)[: self.keep or None]
        assert all(entry.state is READY for entry in newest)
        weighted = self.repository.weighted("m")
        for entry in self.in_state(READY):
            held = entry.control is Control.LOADED or entry.version in weighted
            assert entry in newest or held
            assert entry.control is not Control.UNLOADED


Rollouts.TestCase.settings = settings(examples(60), stateful_step_count=30)
TestRollouts = Rollouts.TestCase
