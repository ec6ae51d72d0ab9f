import logging
import math
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.clock import Clock

from seqserve import errors
from seqserve.errors import InvalidArgument, OptionError, Unavailable
from seqserve.retry import Attempts, Availability, RetryPolicy

UNAVAILABLE = errors.Unavailable("UNAVAILABLE", "draining")
UNREACHABLE = errors.Unreachable("UNAVAILABLE", "connection refused")
LONGEST_JITTER: Callable[[], float] = lambda: 1.0  # noqa: E731


def attempts(
    clock: Clock, timeout_s: float = 100.0, was_reached: bool = True, **policy: Any
) -> Attempts:
    availability = Availability("there:1", clock=clock)
    availability.was_reached = was_reached
    return Attempts(
        RetryPolicy(**policy), timeout_s, availability, clock=clock, jitter=LONGEST_JITTER
    )


def test_the_delays_double_up_to_a_maximum() -> None:
    tries = attempts(Clock(), max_attempts=7, initial_backoff_s=0.5, max_backoff_s=5.0)
    assert [tries.delay_after(UNAVAILABLE) for _ in range(7)] == [0.5, 1, 2, 4, 5, 5, None]


def delays_s(tries: Attempts, clock: Clock, error: errors.CallError) -> list[float]:
    """Fails until it is given up; returns how long each pause was."""
    found: list[float] = []
    while (delay_s := tries.delay_after(error)) is not None:
        found.append(delay_s)
        clock.now_s += delay_s
    return found


def test_a_busy_server_is_asked_until_the_deadline_at_the_times_it_names() -> None:
    clock = Clock()
    found = delays_s(attempts(clock, timeout_s=30.0), clock, full(0.25))
    assert 0.25 <= min(found) <= max(found) <= 0.25 + 2.0
    assert 29.0 < sum(found) < 30.0 and len(found) > 10


def test_without_a_deadline_it_never_gives_up() -> None:
    clock = Clock()
    tries = attempts(clock, timeout_s=math.inf)
    for _ in range(10_000):
        delay_s = tries.delay_after(UNREACHABLE)
        assert delay_s is not None and delay_s <= 2.0
        clock.now_s += delay_s


@pytest.mark.parametrize("timeout_s", [30.0, math.inf])
def test_a_server_that_was_never_reached_is_tried_for_a_few_seconds(timeout_s: float) -> None:
    clock = Clock()
    tries = attempts(clock, timeout_s, was_reached=False)
    assert 4.0 < sum(delays_s(tries, clock, UNREACHABLE)) < 5.0


def test_how_long_a_server_is_tried_that_was_never_reached_can_be_chosen() -> None:
    clock = Clock()
    tries = attempts(clock, was_reached=False, connect_timeout_s=0.5, initial_backoff_s=0.25)
    assert tries.delay_after(UNREACHABLE) == 0.25
    clock.now_s += 0.25
    assert tries.delay_after(UNREACHABLE) is None
    assert attempts(clock, was_reached=False, connect_timeout_s=math.inf).delay_after(UNREACHABLE)


def test_a_server_that_was_reached_is_awaited_beyond_the_attempts() -> None:
    clock = Clock()
    tries = attempts(clock, max_attempts=2, away_timeout_s=1.0)
    assert 1.0 <= sum(delays_s(tries, clock, UNREACHABLE)) < 2.0
    # A server that answers, and one that was never there, get two.
    for error, was_reached in ((UNAVAILABLE, True), (UNREACHABLE, False)):
        tries = attempts(clock, max_attempts=2, away_timeout_s=1.0, was_reached=was_reached)
        assert len(delays_s(tries, clock, error)) == 1


@pytest.mark.parametrize("failure", [UNAVAILABLE, errors.Overloaded("RESOURCE_EXHAUSTED", "full")])
def test_a_server_that_refuses_has_been_reached(failure: errors.CallError) -> None:
    clock = Clock()
    tries = attempts(clock, was_reached=False, connect_timeout_s=0.5)
    assert tries.delay_after(failure) is not None
    clock.now_s += 20.0
    assert tries.delay_after(UNREACHABLE) is not None


def test_a_part_is_counted_apart_and_has_the_same_deadline() -> None:
    clock = Clock()
    whole = attempts(clock, timeout_s=10.0, max_attempts=2)
    assert whole.delay_after(UNAVAILABLE) is not None
    part = whole.part()
    assert part.delay_after(UNAVAILABLE) is not None
    assert part.delay_after(UNAVAILABLE) is None
    clock.now_s += 4.0
    assert whole.begin() == part.begin() == 6.0


def test_an_answer_resets_the_delays() -> None:
    tries = attempts(Clock(), max_attempts=3, initial_backoff_s=0.5)
    for _ in range(2):
        assert [tries.delay_after(UNAVAILABLE) for _ in range(2)] == [0.5, 1]
        tries.answered()


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_jitter_is_full(share: float) -> None:
    policy, there = RetryPolicy(initial_backoff_s=2.0), Availability("there:1")
    tries = Attempts(policy, 100.0, there, clock=Clock(), jitter=lambda: share)
    assert tries.delay_after(UNAVAILABLE) == 2.0 * share


BY_A_PROXY = errors.Cancelled("CANCELLED", "by a proxy")
BY_A_PROXY.by_server = True


def full(retry_after_s: float | None) -> errors.Overloaded:
    return errors.Overloaded("RESOURCE_EXHAUSTED", "full", retry_after_s=retry_after_s)


@pytest.mark.parametrize(
    ("error", "delay_s"),
    [
        # What the server asks for is the minimum.
        (full(3.0), 3.5),
        # The client did not ask for it.
        (BY_A_PROXY, 0.5),
        # The renewal of a quota.
        (full(3600.0), None),
        (full(3e11), None),
        *(
            (kind("CODE", "no"), None)
            for kind in (
                *(errors.CallError, errors.InvalidArgument, errors.NotFound, errors.Cancelled),
                *(errors.DeadlineExceeded, errors.Unauthenticated, errors.PermissionDenied),
                errors.InternalError,
            )
        ),
    ],
)
def test_which_errors_are_retried_and_when(error: errors.CallError, delay_s: float | None) -> None:
    tries = attempts(Clock(), timeout_s=math.inf, initial_backoff_s=0.5)
    assert tries.delay_after(error) == delay_s


def test_a_missed_deadline_says_where_the_time_went() -> None:
    missed = errors.DeadlineExceeded("DEADLINE_EXCEEDED", "Deadline Exceeded")
    clock = Clock()
    tries = attempts(clock, timeout_s=5.0)
    tries.begin()
    clock.now_s += 3.0
    assert tries.delay_after(UNAVAILABLE) is not None
    tries.begin()
    clock.now_s += 2.0
    assert tries.delay_after(missed) is None
    tries.explain(missed)
    assert str(missed) == (
        "DEADLINE_EXCEEDED: not finished within 5 s; for 3.0 s attempts failed, the last with"
        " UNAVAILABLE: draining; the call had run for 2.0 s"
    )
    assert str(pickle.loads(pickle.dumps(missed))) == str(missed)


def test_a_server_that_was_never_reached_was_tried_for_some_time() -> None:
    error = errors.Unreachable("UNAVAILABLE", "no connection to there:1: Connection refused")
    clock = Clock()
    tries = attempts(clock)
    for _ in range(2):
        tries.begin()
        clock.now_s += 1.5
    tries.explain(error)
    assert error.details == ("no connection to there:1: Connection refused (2 attempts in 3.0 s)")


def test_answer_at_one_address_tells_more_than_a_refusal_at_another() -> None:
    refused = errors.Unreachable("UNAVAILABLE", "no connection to [::1]:1: Connection refused")
    handshake = errors.Unreachable("UNAVAILABLE", "no connection to 127.0.0.1:1: Tls failed")
    tries = attempts(Clock())
    for error in (refused, handshake, refused):
        tries.begin()
        tries.delay_after(error)
    tries.explain(refused)
    assert refused.details == "no connection to 127.0.0.1:1: Tls failed (3 attempts in 0.0 s)"


def test_what_the_server_says_is_not_changed() -> None:
    for error in (
        errors.DeadlineExceeded("DEADLINE_EXCEEDED", "passed in the queue"),
        errors.NotFound("NOT_FOUND", "there are: a"),
    ):
        before = str(error)
        attempts(Clock()).explain(error)
        assert str(error) == before


@pytest.mark.parametrize("timeout_s", [9e9, 1e300, sys.maxsize, pytest.param(10**400, id="huge")])
def test_a_timeout_beyond_the_range_of_grpc_is_no_limit(timeout_s: float) -> None:
    assert attempts(Clock(), timeout_s=timeout_s).begin() is None
    assert attempts(Clock(), timeout_s=1e9).begin() == 1e9


@given(
    timeout_s=st.floats(0.001, 1000),
    max_attempts=st.integers(1, 50),
    initial_backoff_s=st.floats(0.001, 100),
    max_backoff_s=st.floats(0, 100),
    events=st.lists(
        st.tuples(
            st.floats(0, 30), st.none() | st.floats(0, 60), st.floats(0, 1, exclude_max=True)
        ),
        max_size=80,
    ),
)
def test_never_past_the_deadline_nor_too_often(
    timeout_s: float,
    max_attempts: int,
    initial_backoff_s: float,
    max_backoff_s: float,
    events: list[tuple[float, float | None, float]],
) -> None:
    """Attempts keep both limits for any durations, server delays and jitter."""
    clock = Clock()
    deadline_s = clock.now_s + timeout_s
    dice = iter([share for *_, share in events])
    backoff = {"initial_backoff_s": initial_backoff_s, "max_backoff_s": max_backoff_s}
    policy = RetryPolicy(max_attempts=max_attempts, **backoff)
    there = Availability("there:1", clock=clock)
    tries = Attempts(policy, timeout_s, there, clock=clock, jitter=lambda: next(dice))
    begun = 1
    for took_s, retry_after_s, _ in events:
        assert clock.now_s < deadline_s
        remaining_s = tries.begin()
        assert remaining_s is not None
        assert 0 < remaining_s <= timeout_s + 1e-9
        clock.now_s += min(took_s, remaining_s)
        delay_s = tries.delay_after(full(retry_after_s))
        if delay_s is None:
            break
        assert (retry_after_s or 0) <= delay_s <= (retry_after_s or 0) + max_backoff_s + 1e-9
        clock.now_s += delay_s
        begun += 1
    assert begun <= max_attempts


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_attempts", 0),
        ("max_attempts", 1.5),
        ("connect_timeout_s", math.nan),
        ("connect_timeout_s", None),
        ("away_timeout_s", -1),
        ("initial_backoff_s", -1.0),
        ("max_backoff_s", "2"),
    ],
)
def test_settings_are_checked(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match=rf"^retry\.{name}: {value!r} is not a "):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize("timeout_s", [None, "x", math.nan, 0.0, -1.0])
def test_timeout_is_checked(timeout_s: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"^INVALID_ARGUMENT: timeout_s: ") as refused:
        attempts(Clock(), timeout_s=timeout_s)
    assert refused.value.field == "timeout_s"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, logger="seqserve.client")
    return caplog


def wait(availability: Availability, error: Unavailable = UNREACHABLE) -> None:
    availability.failed(error)
    availability.awaited(error)


def test_an_outage_is_logged_once_and_so_is_its_end(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    there = Availability("there:1", clock=clock)
    there.answered(clock())
    for _ in range(2):
        for _ in range(10):
            clock.now_s += 1.0
            wait(there)
        there.answered(clock() + 0.5)
        there.answered(clock() + 0.5)
    outage = [
        "there:1 is not available, waiting for it: UNAVAILABLE: connection refused",
        "there:1 is available again",
    ]
    assert logged.messages == outage * 2


def test_a_short_outage_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    """As that of one server among several that drains."""
    clock = Clock()
    there = Availability("there:1", clock=clock)
    for _ in range(10):
        wait(there, UNAVAILABLE)
        clock.now_s += 0.9
        wait(there, UNAVAILABLE)
        there.answered(clock() + 0.1)
        clock.now_s += 5.0
    assert logged.messages == []


def test_an_answer_to_an_older_call_ends_no_outage(logged: pytest.LogCaptureFixture) -> None:
    """A server that drains refuses new calls while it answers those that it has."""
    clock = Clock()
    there = Availability("there:1", clock=clock)
    older_s = clock()
    wait(there, UNAVAILABLE)
    clock.now_s += 2.0
    wait(there, UNAVAILABLE)
    there.answered(older_s)
    assert len(logged.messages) == 1
    there.answered(clock())
    assert len(logged.messages) == 2


def test_an_outage_that_no_call_waits_for_is_not_logged(logged: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    there = Availability("there:1", clock=clock)
    for _ in range(3):
        clock.now_s += 10.0
        there.failed(UNREACHABLE)
    assert logged.messages == []


def test_a_server_is_reached_by_a_connection() -> None:
    there = Availability("there:1")
    there.failed(UNREACHABLE)
    assert not there.was_reached
    there.failed(UNAVAILABLE)
    assert there.was_reached
