"""When an engine that keeps failing is started again, and when it is trusted again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock

from seqserve_server.front.engine_client.supervisor import (
    BreakerLimits,
    BreakerState,
    CircuitBreaker,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
LIMITS = BreakerLimits(threshold=3, pause_s=1.0, max_pause_s=8.0, trial_s=5.0, forget_s=60.0)


class Rig:
    """A breaker, and the clock that it reads."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.breaker = CircuitBreaker(LIMITS, self.clock)
        self.breaker.started()

    @property
    def state(self) -> BreakerState:
        return self.breaker.state

    def run(self, seconds: float) -> None:
        self.clock.now_s += seconds

    def fail(self, times: int = 1) -> None:
        """Fails, starts, fails, ..; ends with a failure."""
        for number in range(times):
            if number:
                self.breaker.started()
            self.breaker.failed()


def test_engine_that_fails_now_and_then_stays_trusted() -> None:
    rig = Rig()
    for _ in range(10):
        rig.run(LIMITS.forget_s)
        rig.fail()
        assert (rig.state, rig.breaker.pause_s) == (CLOSED, 0.0)
        rig.breaker.started()


def test_failures_in_a_row_open_it() -> None:
    rig = Rig()
    rig.fail(2)
    assert rig.state is CLOSED
    rig.breaker.failed()
    assert rig.state is OPEN
    assert rig.breaker.failures == 3


def test_engine_on_trial_is_trusted_once_it_has_survived() -> None:
    rig = Rig()
    rig.fail(3)
    rig.breaker.started()
    assert (rig.state, rig.breaker.trial_left_s) == (HALF_OPEN, 5.0)
    rig.run(4.0)
    assert (rig.state, rig.breaker.trial_left_s) == (HALF_OPEN, 1.0)
    rig.run(1.0)
    assert (rig.state, rig.breaker.trial_left_s) == (CLOSED, 0.0)


def test_failure_on_trial_opens_it_again() -> None:
    rig = Rig()
    rig.fail(3)
    rig.breaker.started()
    rig.breaker.failed()
    assert rig.state is OPEN


def test_engine_that_fails_soon_after_its_trial_gets_no_new_row() -> None:
    rig = Rig()
    rig.fail(3)
    rig.breaker.started()
    rig.run(LIMITS.trial_s)
    rig.breaker.failed()
    assert rig.state is OPEN


def test_failures_are_forgotten_after_a_long_run() -> None:
    rig = Rig()
    rig.fail(4)
    rig.breaker.started()
    rig.run(LIMITS.forget_s)
    rig.breaker.failed()
    assert (rig.state, rig.breaker.failures, rig.breaker.pause_s) == (CLOSED, 1, 0.0)


def test_pauses_double_up_to_a_maximum() -> None:
    rig = Rig()
    pauses = []
    for _ in range(7):
        rig.breaker.failed()
        pauses.append(rig.breaker.pause_s)
    assert pauses == [0.0, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_any_number_of_failures_has_a_pause() -> None:
    rig = Rig()
    rig.breaker.failures = 100_000
    assert rig.breaker.pause_s == LIMITS.max_pause_s


steps = st.lists(st.one_of(st.none(), st.floats(0.0, 100.0)), max_size=40)


@given(steps)
def test_it_is_closed_only_after_few_failures_or_a_trial(plan: list[float | None]) -> None:
    """None is a failure; a number starts the engine, if it does not run, and lets it run."""
    rig = Rig()
    ran_s, failures, runs = 0.0, 0, True
    for step in plan:
        if step is None:
            failures = 1 if ran_s >= LIMITS.forget_s else failures + 1
            ran_s, runs = 0.0, False
            rig.breaker.failed()
        else:
            if not runs:
                rig.breaker.started()
            ran_s, runs = ran_s + step, True
            rig.run(step)
        # Sums of floats differ by their order.
        if abs(ran_s - LIMITS.trial_s) > 1e-6 and abs(ran_s - LIMITS.forget_s) > 1e-6:
            is_trusted = failures < LIMITS.threshold or (runs and ran_s > LIMITS.trial_s)
            assert (rig.state is CLOSED) is is_trusted
            assert (rig.state is HALF_OPEN) is (not is_trusted and runs)
            assert 0.0 <= rig.breaker.pause_s <= LIMITS.max_pause_s
        else:
            return
