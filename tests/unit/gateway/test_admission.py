"""How many calls begin, and run at once; turns of callers that want more than there is."""

import asyncio

import pytest
from tests.clock import Clock

from seqserve_gateway.admission import Admission, Shared, Turns
from seqserve_gateway.failure import Failure


def test_a_place_is_free_again_after_the_call() -> None:
    admission = Admission(calls=1)
    with admission.call(), pytest.raises(Failure) as refused, admission.call():
        pass
    assert "under way" in refused.value.details
    with admission.call():
        pass


def test_calls_begin_at_a_rate_after_the_burst() -> None:
    clock = Clock()
    admission = Admission(rate=2, burst=3, clock=clock)

    def admitted() -> int:
        for count in range(100):
            try:
                with admission.call():
                    pass
            except Failure:
                return count
        return 100

    assert admitted() == 3
    clock.now_s += 1
    assert admitted() == 2
    clock.now_s += 3600
    assert admitted() == 3


def taken(shared: Shared, caller: str, size: int) -> str:
    try:
        shared.take(caller, size, "UNAVAILABLE", "bytes")
    except Failure as failure:
        return failure.code
    return "OK"


def test_a_caller_has_most_of_what_is_shared_and_leaves_room_for_others() -> None:
    shared = Shared(16)
    held = 0
    while taken(shared, "a", 1) == "OK":
        held += 1
    assert held == 12
    assert taken(shared, "a", 1) == "RESOURCE_EXHAUSTED"
    assert [taken(shared, "b", size) for size in (5, 3)] == ["UNAVAILABLE", "OK"]
    shared.give_back("a", 12)
    assert (taken(shared, "a", 9), shared.free) == ("OK", 4)


class Tasks:
    """Tasks that have their turn one after another, and note whose they are."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.ran: list[str] = []
        self.running = self.most_running = 0

    async def run(self, caller: str) -> None:
        async with self._turns.turn(caller):
            self.ran.append(caller)
            self.running += 1
            self.most_running = max(self.most_running, self.running)
            await asyncio.sleep(0)
            self.running -= 1


async def test_callers_take_turns_however_much_each_wants() -> None:
    tasks = Tasks(Turns(1, 1))
    await asyncio.gather(*map(tasks.run, [*"aaaaaa", *"bb", "c"]))
    assert "".join(tasks.ran) == "aabcabaaa"
    assert tasks.most_running == 1


@pytest.mark.parametrize(("callers", "most"), [("aaaaa", 2), ("aaaaab", 3), ("abcdef", 3)])
async def test_places_and_those_of_one_caller_are_bounded(callers: str, most: int) -> None:
    tasks = Tasks(Turns(3, 2))
    await asyncio.gather(*map(tasks.run, callers))
    assert (sorted(tasks.ran), tasks.most_running) == ([*callers], most)


@pytest.mark.parametrize("has_left", [True, False])
async def test_task_that_is_cancelled_leaves_its_place_or_its_queue(has_left: bool) -> None:
    turns = Turns(1, 1)
    tasks = Tasks(turns)
    async with turns.turn("a"):
        waiting = [asyncio.create_task(tasks.run(caller)) for caller in "abc"]
        await asyncio.sleep(0)
        waiting[0].cancel()
        if has_left:
            await asyncio.sleep(0)
    # The next one has its place, and has not begun.
    waiting[1].cancel()
    await asyncio.wait(waiting)
    await tasks.run("d")
    assert tasks.ran == ["c", "d"]


async def test_more_than_a_caller_may_have_waiting_is_refused() -> None:
    turns = Turns(1, 1, most_waiting=2)
    tasks = Tasks(turns)
    async with turns.turn("a"):
        waiting = [asyncio.create_task(tasks.run(caller)) for caller in "aab"]
        await asyncio.sleep(0)
        with pytest.raises(Failure) as refused:
            await tasks.run("a")
    await asyncio.wait(waiting)
    assert (refused.value.status, sorted(tasks.ran)) == (429, [*"aab"])


async def test_task_may_take_several_places_and_is_not_passed_for_ever() -> None:
    turns = Turns(6, 5)
    ran: list[int] = []

    async def run(caller: str, size: int) -> None:
        async with turns.turn(caller, size):
            ran.append(size)

    async with turns.turn("a", 3):
        # One is beyond the places of its caller; the next one has its turn before the last one.
        waiting = [asyncio.create_task(run(*each)) for each in (("a", 3), ("b", 4), ("c", 1))]
        await asyncio.sleep(0)
        assert ran == []
    await asyncio.wait(waiting)
    assert sorted(ran) == [1, 3, 4]
