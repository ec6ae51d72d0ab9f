import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock
from tests.unit.server.front.echo import PATIENCE_S

from seqserve_server.contract.errors import EngineFault
from seqserve_server.front.engine_client.supervisor import CircuitBreaker, Supervisor

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"
TRIAL_S, FORGET_S, MAX_PAUSE_S = 5.0, 60.0, 4.0
LIMITS: dict[str, Any] = {
    "threshold": 3,
    "first_pause_s": 1.0,
    "max_pause_s": MAX_PAUSE_S,
    "trial_s": TRIAL_S,
    "forget_s": FORGET_S,
}
FAIL = None
"""A step of a plan; a number starts the engine, if it does not run, and lets it run."""


class Breaker(CircuitBreaker):
    """A breaker and the clock that it reads."""

    def __init__(self) -> None:
        self.time = Clock()
        super().__init__(**LIMITS, clock=self.time)
        self.started()
        self._runs = True

    def go(self, *plan: float | None) -> None:
        for ran_s in plan:
            if ran_s is FAIL:
                self.failed()
            else:
                if not self._runs:
                    self.started()
                self.time.now_s += ran_s
            self._runs = ran_s is not FAIL

    @property
    def state(self) -> str:
        return CLOSED if self.is_closed else HALF_OPEN if self.runs else OPEN


@pytest.mark.parametrize(
    ("plan", "state", "failures", "pause_s"),
    [
        pytest.param([60.0, FAIL] * 10, CLOSED, 1, 0.0, id="fails now and then"),
        pytest.param([FAIL, 0.0, FAIL], CLOSED, 2, 1.0, id="two in a row"),
        pytest.param([FAIL] * 3, OPEN, 3, 2.0, id="three in a row"),
        pytest.param([FAIL] * 6, OPEN, 6, 4.0, id="pauses have a maximum"),
        pytest.param([FAIL] * 3 + [4.9], HALF_OPEN, 3, 2.0, id="on trial"),
        pytest.param([FAIL] * 3 + [4.0, 1.0], CLOSED, 3, 2.0, id="survived its trial"),
        pytest.param([FAIL] * 3 + [0.0, FAIL], OPEN, 4, 4.0, id="failed on trial"),
        pytest.param([FAIL] * 3 + [5.0, FAIL], OPEN, 4, 4.0, id="failed soon after its trial"),
        pytest.param([FAIL] * 4 + [60.0, FAIL], CLOSED, 1, 0.0, id="forgotten after a long run"),
    ],
)
def test_engine_is_trusted_until_it_fails_in_a_row(
    plan: list[float | None], state: str, failures: int, pause_s: float
) -> None:
    breaker = Breaker()
    breaker.go(*plan)
    assert (breaker.state, breaker.failures, breaker.pause_s) == (state, failures, pause_s)


def test_trial_counts_down() -> None:
    breaker = Breaker()
    left_s = []
    for plan in ([FAIL] * 3 + [0.0], [4.0], [1.0]):
        breaker.go(*plan)
        left_s.append(breaker.trial_left_s)
    assert left_s == [5.0, 1.0, 0.0]


def test_any_number_of_failures_has_a_pause() -> None:
    breaker = Breaker()
    breaker.failures = 100_000
    assert breaker.pause_s == MAX_PAUSE_S


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 100.0)), max_size=40))
def test_it_is_closed_only_after_few_failures_or_a_trial(plan: list[float | None]) -> None:
    breaker = Breaker()
    ran_s, failures, runs = 0.0, 0, True
    for step in plan:
        breaker.go(step)
        if step is FAIL:
            failures = 1 if ran_s >= FORGET_S else failures + 1
        ran_s, runs = (0.0, False) if step is FAIL else (ran_s + step, True)
        # Sums of floats differ by their order.
        if abs(ran_s - TRIAL_S) < 1e-6 or abs(ran_s - FORGET_S) < 1e-6:
            return
        is_trusted = failures < LIMITS["threshold"] or (runs and ran_s > TRIAL_S)
        assert (breaker.state == CLOSED) is is_trusted
        assert (breaker.state == HALF_OPEN) is (not is_trusted and runs)
        assert 0.0 <= breaker.pause_s <= MAX_PAUSE_S


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
        self.supervisor = Supervisor("m/1", self.engine, CircuitBreaker(**LIMITS, clock=self.clock))
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
        if delay_s == TRIAL_S and not self.trials_end:
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
    assert (rig.supervisor.restarts, rig.engine.discarded, rig.naps_s) == (1, 1, [])
    assert rig.notes == [(True, "")] * 2


async def test_starts_that_fail_have_longer_and_longer_pauses(rig: Rig) -> None:
    await rig.fail(failing_starts=5, changes=8)
    assert rig.naps_s == [1.0, 2.0, 4.0, 4.0, 4.0, TRIAL_S]
    # Nothing of a start that failed is left when the next one begins.
    assert rig.supervisor.restarts == rig.engine.discarded == 6


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
