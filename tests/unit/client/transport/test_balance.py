"""Which connection a call gets, and when another one is opened, without a network."""

from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tests.clock import Clock

from seqserve._transport.balance import Balancer, Opened, Place
from seqserve.errors import (
    CallError,
    Cancelled,
    DeadlineExceeded,
    InvalidArgument,
    Overloaded,
    Unavailable,
)

BUSY = 32
DRAINING = Unavailable("UNAVAILABLE", "draining")


class Numbered(Balancer[int]):
    def __init__(self, most: int, servers: int = 1) -> None:
        self.time = Clock()
        super().__init__(most, servers, clock=self.time)
        self.checks: list[Future[bytes]] = []

    @property
    def opened(self) -> int:
        return 1 + len(self.checks)

    def places(self, count: int, work: int = 1) -> list[Place[int]]:
        return [self.place(work) for _ in range(count)]

    def answer(self) -> None:
        self.checks[-1].set_result(b"")

    def close(self) -> None:
        self._refuse()

    def _open(self, *, is_first: bool) -> Opened[int]:
        if is_first:
            return Opened(0)
        self.checks.append(Future())
        return Opened(len(self.checks), self.checks[-1])


def numbers(places: list[Place[int]]) -> list[int]:
    return [place.stubs for place in places]


def two(most: int = 2) -> tuple[Numbered, list[Place[int]]]:
    """Returns two connections, and the places of the calls on the first one."""
    balancer = Numbered(most)
    places = balancer.places(BUSY)
    balancer.answer()
    return balancer, places


def test_few_calls_have_one_connection() -> None:
    balancer = Numbered(8)
    places = balancer.places(BUSY - 1)
    for _ in range(100):
        places.pop(0).leave()
        places.append(balancer.place())
    assert set(numbers(places)) == {0} and balancer.opened == 1


def test_many_calls_open_another_one_which_gets_calls_when_it_answers() -> None:
    balancer = Numbered(8)
    assert set(numbers(balancer.places(2 * BUSY))) == {0}
    # Further ones wait for it.
    assert balancer.opened == 2
    balancer.answer()
    assert set(numbers(balancer.places(BUSY))) == {1}


def test_connections_grow_with_the_calls_up_to_their_number() -> None:
    balancer = Numbered(3)
    for opened in (2, 3, 3, 3):
        balancer.places(BUSY)
        assert balancer.opened == opened
        if not balancer.checks[-1].done():
            balancer.answer()
    assert sorted(numbers(balancer.places(3))) == [0, 1, 2]


def test_one_connection_stays_one() -> None:
    balancer = Numbered(1)
    assert set(numbers(balancer.places(3 * BUSY))) == {0} and balancer.opened == 1


@pytest.mark.parametrize(("servers", "work"), [(1, BUSY // 2), (3, 1)])
def test_large_calls_count_more_and_several_servers_share_the_work(servers: int, work: int) -> None:
    balancer = Numbered(8, servers)
    balancer.places(servers * BUSY // work - 1, work)
    assert balancer.opened == 1
    balancer.place(work)
    assert balancer.opened == 2


def test_a_call_goes_where_the_least_is_in_progress() -> None:
    balancer, first = two()
    second = balancer.places(BUSY)
    assert set(numbers(second)) == {1}
    for place in (*first[:3], *second[:2]):
        place.leave()
    assert sorted(numbers(balancer.places(5))) == [0, 0, 0, 1, 1]


def test_a_place_is_left_once() -> None:
    balancer, first = two()
    balancer.places(BUSY - 2)
    for _ in range(3):
        first[0].leave()
    assert numbers(balancer.places(1)) == [1]


@pytest.mark.parametrize(
    "error",
    [
        DRAINING,
        Unavailable("INTERNAL", "Received RST_STREAM with error code 2"),
        Overloaded("RESOURCE_EXHAUSTED", "full", retry_after_s=0.2),
    ],
)
def test_a_connection_of_a_failed_call_is_avoided_for_a_while(error: CallError) -> None:
    balancer, _ = two()
    place = balancer.place()
    assert (place.stubs, place.failed(error)) == (1, error)
    place.leave()
    balancer.time.now_s += 0.3
    # Though the second one has nothing to do.
    assert set(numbers(balancer.places(3))) == {0}
    balancer.time.now_s += 1.0
    assert set(numbers(balancer.places(3))) == {1}


BY_A_PROXY = Cancelled("CANCELLED", "RST_STREAM")
BY_A_PROXY.by_server = True


@pytest.mark.parametrize(
    ("error", "after_s", "taken"),
    [
        # Until the retry that the server asks for.
        (Unavailable("UNAVAILABLE", "loading", retry_after_s=5.0), 5.5, 0),
        (BY_A_PROXY, 0.0, 0),
        # No fault of a connection.
        (InvalidArgument("INVALID_ARGUMENT", "source: too long"), 0.0, 1),
        (DeadlineExceeded("DEADLINE_EXCEEDED", "late"), 0.0, 1),
        (Cancelled("CANCELLED", "the call was cancelled"), 0.0, 1),
    ],
)
def test_which_connection_follows_an_error(error: CallError, after_s: float, taken: int) -> None:
    balancer, _ = two()
    place = balancer.place()
    place.failed(error)
    place.leave()
    balancer.time.now_s += after_s
    assert numbers(balancer.places(1)) == [taken]


def test_if_all_are_avoided_the_least_work_decides() -> None:
    balancer, first = two()
    second = balancer.place()
    for place in (first[0], second):
        place.failed(DRAINING)
    assert numbers(balancer.places(1)) == [1]


def test_avoided_connections_let_another_one_be_opened() -> None:
    balancer, _ = two(most=3)
    place = balancer.place()
    place.failed(DRAINING)
    place.leave()
    balancer.place()
    assert balancer.opened == 3


def test_after_the_end_there_are_no_places() -> None:
    balancer, places = two()
    balancer.close()
    with pytest.raises(Cancelled, match="client is closed"):
        balancer.place()
    for place in places:
        place.leave()


def test_threads_lose_no_work() -> None:
    balancer = Numbered(2)

    def calls(_: int) -> None:
        for _ in range(200):
            balancer.place().leave()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(calls, range(8)))
    balancer.places(BUSY - 1)
    assert balancer.opened == 1
    balancer.place()
    assert balancer.opened == 2
