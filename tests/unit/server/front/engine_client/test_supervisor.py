"""When an engine that has failed is started again, and who is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.clock import Clock

from seqserve_server.contract.errors import EngineFault
from seqserve_server.front.engine_client.supervisor import BreakerLimits, CircuitBreaker, Supervisor

PATIENCE_S = 30.0
LIMITS = BreakerLimits(threshold=3, pause_s=1.0, max_pause_s=4.0, trial_s=5.0, forget_s=60.0)


class FakeEngine:
    """An engine whose next starts fail as often as a test says."""

    def __init__(self) -> None:
        self.failing = 0
        self.discarded = 0
        self.on_start: Callable[[], None] = lambda: None

    def terminate(self) -> None:
        self.discarded += 1

    def load(self) -> None:
        if self.failing:
            self.failing -= 1
            raise EngineFault("its process has ended")

    async def start(self) -> None:
        self.on_start()


class Rig:
    """A supervisor, its engine, and a clock that sleeping moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock()
        self.naps_s: list[float] = []
        self.engine = FakeEngine()
        self.supervisor = Supervisor("m/1", self.engine, CircuitBreaker(LIMITS, self.clock))
        self.supervisor.started()
        self.notes: list[tuple[bool, str]] = []
        self.supervisor.on_change = self._note
        self.engine.on_start = self.supervisor.started
        self.trials_end = True
        self.sleep = asyncio.sleep
        monkeypatch.setattr(asyncio, "sleep", self._nap)

    def _note(self) -> None:
        trouble = "" if self.supervisor.is_trusted else self.supervisor.last_error
        self.notes.append((self.supervisor.is_trusted, trouble))

    async def _nap(self, delay_s: float) -> None:
        if delay_s == LIMITS.trial_s and not self.trials_end:
            await asyncio.Event().wait()
        if delay_s >= 0.5:
            self.naps_s.append(delay_s)
            self.clock.now_s += delay_s
            delay_s = 0.0
        await self.sleep(delay_s)

    async def fail(self, *, failing_starts: int = 0, changes: int) -> None:
        """Lets the engine fail, and waits for a number of changes."""
        self.engine.failing = failing_starts
        del self.notes[:]
        self.supervisor.failed()
        await self.until(lambda: len(self.notes) == changes)

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await self.sleep(0.001)


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


async def test_first_failure_is_followed_by_a_start_at_once(rig: Rig) -> None:
    await rig.fail(changes=2)
    assert rig.naps_s == []
    assert (rig.supervisor.restarts, rig.engine.discarded) == (1, 1)
    assert [is_trusted for is_trusted, _ in rig.notes] == [True, True]


async def test_starts_that_fail_have_longer_and_longer_pauses(rig: Rig) -> None:
    await rig.fail(failing_starts=5, changes=8)
    *pauses_s, trial_s = rig.naps_s
    assert pauses_s == [1.0, 2.0, 4.0, 4.0, 4.0]
    assert trial_s == LIMITS.trial_s
    assert rig.supervisor.restarts == 6
    # Nothing of a start that failed is left when the next one begins.
    assert rig.engine.discarded == 6


async def test_engine_that_keeps_failing_is_trusted_only_after_a_trial(rig: Rig) -> None:
    await rig.fail(failing_starts=2, changes=5)
    assert rig.notes == [
        (True, ""),
        (True, ""),
        (False, "its engine has failed 3 times in a row and is started again"),
        (False, "its engine has failed 3 times in a row and is on trial"),
        (True, ""),
    ]


async def test_engine_that_fails_on_trial_gets_no_end_of_it(rig: Rig) -> None:
    rig.trials_end = False
    await rig.fail(failing_starts=2, changes=4)
    await rig.fail(changes=2)
    assert [is_trusted for is_trusted, _ in rig.notes] == [False, False]
    rig.supervisor.stop()


async def test_supervisor_that_was_stopped_starts_nothing(rig: Rig) -> None:
    rig.supervisor.failed()
    rig.supervisor.stop()
    await rig.sleep(0.01)
    assert rig.supervisor.restarts == 0
