"""When those come back who were refused, and for how long nobody asks for them."""

from __future__ import annotations

import pytest
from tests.clock import Clock

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority
from seqserve_server.front.engine_client.refusals import (
    LEAST_S,
    MOMENT_S,
    MOST_HOLDERS,
    MOST_S,
    QueueKey,
    RefusalCache,
)

ANN = QueueKey("ann", Priority.NORMAL)
FULL = QueueFull("5 requests are waiting already", 2.0, Bound.LENGTH, 0.5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def promises(clock: Clock) -> RefusalCache:
    return RefusalCache(clock)


def repeated(promises: RefusalCache, holder: QueueKey) -> QueueFull:
    with pytest.raises(QueueFull) as caught:
        promises.check(holder)
    return caught.value


def test_one_behind_the_other(promises: RefusalCache, clock: Clock) -> None:
    assert promises.refused(ANN, FULL).retry_after_s == pytest.approx(2.0)
    assert promises.refused(ANN, FULL).retry_after_s == pytest.approx(2.5)
    clock.now_s += 1.0
    assert promises.refused(ANN, FULL).retry_after_s == pytest.approx(2.0)
    clock.now_s += 9.0
    assert promises.refused(ANN, FULL).retry_after_s == pytest.approx(2.0)


def test_repeated_ones_too(promises: RefusalCache) -> None:
    first = promises.refused(ANN, FULL)
    second = repeated(promises, ANN)
    assert (second.bound, str(second)) == (first.bound, str(first))
    assert second.retry_after_s == pytest.approx(2.5)
    assert promises.refused(ANN, FULL).retry_after_s == pytest.approx(3.0)


@pytest.mark.parametrize(("wait_s", "moment_s"), [(2.0, MOMENT_S), (0.04, 0.01)])
def test_repeated_for_a_moment(
    promises: RefusalCache, clock: Clock, wait_s: float, moment_s: float
) -> None:
    promises.check(ANN)
    promises.refused(ANN, QueueFull("full", wait_s))
    clock.now_s += 0.9 * moment_s
    repeated(promises, ANN)
    repeated(promises, ANN)
    clock.now_s += 0.2 * moment_s
    promises.check(ANN)


@pytest.mark.parametrize("bound", [Bound.DEADLINE, Bound.TOKENS])
def test_what_lies_in_the_request_is_not_repeated(promises: RefusalCache, bound: Bound) -> None:
    promises.refused(ANN, QueueFull("too much", 2.0, bound))
    promises.check(ANN)


@pytest.mark.parametrize(
    "other",
    [
        QueueKey("bob", Priority.NORMAL),
        QueueKey("ann", Priority.LOW),
        QueueKey("ann", Priority.NORMAL, has_target=True),
    ],
)
def test_others_have_promises_of_their_own(promises: RefusalCache, other: QueueKey) -> None:
    promises.refused(ANN, FULL)
    promises.check(other)
    assert promises.refused(other, FULL).retry_after_s == pytest.approx(2.0)


def test_nobody_is_told_to_come_back_in_no_time_or_next_year(promises: RefusalCache) -> None:
    assert promises.refused(ANN, QueueFull("full", 0.001)).retry_after_s == LEAST_S
    for _ in range(99):
        last = promises.refused(ANN, FULL)
    assert last.retry_after_s == MOST_S


def test_who_was_told_longest_ago_is_forgotten_first(promises: RefusalCache) -> None:
    holders = [QueueKey(f"{number}", Priority.NORMAL) for number in range(MOST_HOLDERS + 1)]
    for holder in (holders[0], *holders):
        promises.refused(holder, FULL)
    promises.check(holders[0])
    assert promises.refused(holders[0], FULL).retry_after_s == pytest.approx(2.0)
    assert promises.refused(holders[-1], FULL).retry_after_s == pytest.approx(2.5)
