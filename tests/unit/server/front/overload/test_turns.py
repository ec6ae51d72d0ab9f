import asyncio
import gc
import threading
from collections.abc import Generator

import pytest

from seqserve_server.front.overload.turns import SLICE_S, TextScheduler, run_now

LONG = 2_000


class Ticking:
    """A clock on which each look takes a whole slice: so every slice has one step."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 0.6 * SLICE_S
        return self.now_s


def steps(name: str, count: int, log: list[str]) -> Generator[None, None, str]:
    for _ in range(count):
        log.append(name)
        yield
    return name


async def test_the_result_is_that_of_the_work() -> None:
    turns = TextScheduler()
    assert await turns.read("a", steps("done", 3, []), LONG) == "done"
    assert run_now(steps("done", 3, [])) == "done"


async def test_callers_take_turns_and_a_callers_texts_come_one_after_the_other() -> None:
    turns, log = TextScheduler(clock=Ticking()), list[str]()
    texts = [("a", "a1"), ("a", "a2"), ("b", "b")]
    await asyncio.gather(*(turns.read(caller, steps(name, 4, log), LONG) for caller, name in texts))
    assert sorted(log) == sorted(["a1"] * 4 + ["a2"] * 4 + ["b"] * 4)
    # The second caller has every second turn as soon as both wait.
    assert log[:8].count("b") >= 3


async def test_an_error_ends_the_work_and_frees_the_turn() -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ZeroDivisionError

    turns = TextScheduler()
    with pytest.raises(ZeroDivisionError):
        await turns.read("a", failing(), LONG)
    assert await turns.read("a", steps("next", 1, []), LONG) == "next"


@pytest.mark.parametrize("fails", [False, True])
async def test_a_cancelled_text_is_read_no_further_and_others_go_on(fails: bool) -> None:
    turns, log, logged = TextScheduler(clock=Ticking()), list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda *context: logged.append(context))
    is_reading, may_go_on = threading.Event(), threading.Event()

    def held() -> Generator[None, None, None]:
        is_reading.set()
        assert may_go_on.wait(20.0)
        log.append("held")
        if fails:
            raise ZeroDivisionError
        yield
        log.append("never")

    reading = asyncio.create_task(turns.read("a", held(), LONG))
    assert await asyncio.to_thread(is_reading.wait, 20.0)
    waiting = asyncio.create_task(turns.read("b", steps("waiting", 1, log), LONG))
    left = asyncio.create_task(turns.read("c", steps("left", 1, log), LONG))
    await asyncio.sleep(0)
    reading.cancel()
    left.cancel()
    may_go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert await waiting == "waiting"
    gc.collect()
    assert (log, logged) == (["held", "waiting"], [])
