import pytest
from tests.clock import Clock

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority
from seqserve_server.front.engine_client.engine import (
    MAX_KEYS,
    MAX_REPEAT_S,
    MAX_RETRY_S,
    MIN_RETRY_S,
    QueueKey,
    RefusalCache,
)

ANN = QueueKey("ann", "web", Priority.NORMAL)
FULL = QueueFull("5 requests are waiting already", 2.0, Bound.LENGTH, 0.5)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def refusals(clock: Clock) -> RefusalCache:
    return RefusalCache(clock)


def repeated(refusals: RefusalCache, key: QueueKey) -> QueueFull:
    with pytest.raises(QueueFull) as caught:
        refusals.check(key)
    return caught.value


def test_refused_requests_get_later_and_later_times(refusals: RefusalCache, clock: Clock) -> None:
    def refused_s() -> float:
        return refusals.refused(ANN, FULL).retry_after_s

    assert refused_s() == pytest.approx(2.0)
    # A refusal that is repeated counts too.
    again = repeated(refusals, ANN)
    assert (again.bound, str(again)) == (FULL.bound, str(FULL))
    assert again.retry_after_s == pytest.approx(2.5)
    assert refused_s() == pytest.approx(3.0)
    clock.now_s += 1.5
    assert refused_s() == pytest.approx(2.0)
    clock.now_s += 9.0
    assert refused_s() == pytest.approx(2.0)


@pytest.mark.parametrize(("wait_s", "repeat_s"), [(2.0, MAX_REPEAT_S), (0.04, 0.01)])
def test_refusal_is_repeated_for_a_moment(
    refusals: RefusalCache, clock: Clock, wait_s: float, repeat_s: float
) -> None:
    refusals.check(ANN)
    refusals.refused(ANN, QueueFull("full", wait_s))
    clock.now_s += 0.9 * repeat_s
    repeated(refusals, ANN)
    repeated(refusals, ANN)
    clock.now_s += 0.2 * repeat_s
    refusals.check(ANN)


@pytest.mark.parametrize("bound", [Bound.DEADLINE, Bound.TOKENS, Bound.ATTENTION])
def test_refusal_of_a_request_itself_is_not_repeated(refusals: RefusalCache, bound: Bound) -> None:
    refusals.refused(ANN, QueueFull("too much", 2.0, bound))
    refusals.check(ANN)


@pytest.mark.parametrize(
    "other",
    [
        QueueKey("bob", "web", Priority.NORMAL),
        QueueKey("ann", "batch", Priority.NORMAL),
        QueueKey("ann", "web", Priority.LOW),
        QueueKey("ann", "web", Priority.NORMAL, has_target=True),
    ],
)
def test_each_key_has_refusals_of_its_own(refusals: RefusalCache, other: QueueKey) -> None:
    refusals.refused(ANN, FULL)
    refusals.check(other)
    assert refusals.refused(other, FULL).retry_after_s == pytest.approx(2.0)


def test_retry_times_are_bounded(refusals: RefusalCache) -> None:
    assert refusals.refused(ANN, QueueFull("full", 0.001)).retry_after_s == MIN_RETRY_S
    for _ in range(99):
        last = refusals.refused(ANN, FULL)
    assert last.retry_after_s == MAX_RETRY_S


def test_oldest_refusal_is_forgotten_first(refusals: RefusalCache) -> None:
    keys = [QueueKey(f"{number}", "", Priority.NORMAL) for number in range(MAX_KEYS + 1)]
    for key in (keys[0], *keys):
        refusals.refused(key, FULL)
    refusals.check(keys[0])
    assert refusals.refused(keys[0], FULL).retry_after_s == pytest.approx(2.0)
    assert refusals.refused(keys[-1], FULL).retry_after_s == pytest.approx(2.5)
