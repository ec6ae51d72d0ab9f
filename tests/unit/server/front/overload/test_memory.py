import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.loop import settled

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.front.overload.memory import FairMemory, Reservation

MB, KB = 1_000_000, 1000


def begun(memory: FairMemory, caller: str, size: int, **more: Any) -> asyncio.Task[Reservation]:
    return asyncio.create_task(memory.reserve(caller, size, **more))


async def waits(task: asyncio.Task[Reservation]) -> None:
    """Checks that a call is not served, and ends it."""
    await settled()
    assert not task.done()
    task.cancel()


async def test_bytes_are_reserved_until_they_are_released() -> None:
    memory = FairMemory(1000 * MB)
    first = await memory.reserve("a", 300 * MB)
    second = await memory.reserve("b", 100 * MB)
    assert memory.reserved_bytes == 400 * MB
    first.shrink(10 * MB)
    first.shrink(20 * MB)
    assert (first.size, memory.reserved_bytes) == (10 * MB, 110 * MB)
    first.release()
    second.release()
    second.release()
    assert memory.reserved_bytes == 0


@pytest.mark.parametrize(
    ("share", "sizes"), [(0.5, {"a": 500, "b": 250, "c": 125}), (1.0, {"b": 1000})]
)
async def test_a_caller_leaves_room_for_others(share: float, sizes: dict[str, int]) -> None:
    memory = FairMemory(1000 * MB, caller_share=share)
    assert memory.max_per_caller == 1000 * MB * share
    for caller, size in sizes.items():
        await memory.reserve(caller, size * MB)
    await waits(begun(memory, "a", MB))


async def test_waiting_calls_are_served_in_turn() -> None:
    memory = FairMemory(1000 * MB, caller_share=1.0)
    held = [await memory.reserve("x", 250 * MB) for _ in range(4)]
    served: list[str] = []

    async def wait(name: str) -> None:
        await memory.reserve(name[0], 250 * MB)
        served.append(name)

    waits = [asyncio.create_task(wait(name)) for name in ("a1", "a2", "a3", "b1", "c1")]
    await settled()
    assert memory.num_waiting == 5
    for count, reservation in enumerate(held):
        assert len(served) == count
        reservation.release()
        await settled()
    assert served == ["a1", "b1", "c1", "a2"]
    waits[2].cancel()
    await settled()
    assert memory.num_waiting == 0


async def test_a_large_one_does_not_hold_up_other_callers() -> None:
    memory = FairMemory(1000 * MB)
    await memory.reserve("a", 300 * MB)
    large = begun(memory, "a", 250 * MB)
    await settled()
    await memory.reserve("b", 100 * MB)
    # Nor is it passed by later calls of its own caller, unless they are small.
    later = begun(memory, "a", 100 * MB)
    await settled()
    assert not large.done() and not later.done()
    large.cancel()
    await settled()
    assert later.done()


@pytest.mark.parametrize("is_granted", [True, False])
async def test_a_cancelled_call_holds_nothing_and_the_next_is_served(is_granted: bool) -> None:
    memory = FairMemory(1000 * MB)
    held = await memory.reserve("a", 500 * MB)
    waits = [begun(memory, "a", 100 * MB) for _ in range(2)]
    await settled()
    # Granted and cancelled in one iteration of the loop, or cancelled first.
    ends = (held.release, waits[0].cancel)
    for end in ends if is_granted else reversed(ends):
        end()
    await settled()
    assert waits[0].cancelled() and memory.num_waiting == 0
    assert waits[1].result().size == memory.reserved_bytes == 100 * MB


async def test_a_wait_has_an_end() -> None:
    memory = FairMemory(1000 * MB)
    await memory.reserve("a", 500 * MB)
    with pytest.raises(QueueFull, match=r"the memory for answers .* free for 0\.01 s") as refusal:
        await memory.reserve("a", MB, max_wait_s=0.01)
    assert refusal.value.bound is Bound.ANSWERS
    assert refusal.value.retry_after_s > 0
    assert memory.num_waiting == 0


async def test_few_requests_may_wait() -> None:
    memory = FairMemory(8_000 * KB, caller_share=0.5)
    await memory.reserve("a", 4_000 * KB)
    # An eighth of the memory is for requests that wait, half of that for one caller.
    waits = [begun(memory, "a", KB, held_bytes=200 * KB) for _ in range(2)]
    await settled()
    with pytest.raises(QueueFull, match="calls wait for it already"):
        await memory.reserve("a", KB, held_bytes=200 * KB)
    for wait in waits:
        wait.cancel()
    await settled()
    again = begun(memory, "a", KB, held_bytes=200 * KB)
    await settled()
    assert memory.num_waiting == 1
    again.cancel()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 500), st.sampled_from("rcgs")), max_size=40
    )
)
async def test_no_call_is_forgotten(steps: list[tuple[str, int, str]]) -> None:
    """Whatever callers do, the bytes are bounded, and all calls are served in the end."""
    memory = FairMemory(1000 * MB, caller_share=0.5)
    waits: list[asyncio.Task[Reservation]] = []
    for caller, size, action in steps:
        if action == "r" or not waits:
            waits.append(begun(memory, caller, size * MB, max_wait_s=math.inf))
        else:
            call = waits.pop(size % len(waits))
            if action == "c" or not call.done():
                call.cancel()
                if call.done():
                    call.result().release()
            else:
                call.result().release()
        await settled()
        assert memory.reserved_bytes <= 1000 * MB
    while waits:
        await settled()
        done = [call for call in waits if call.done()]
        assert done, "calls wait for each other"
        for call in done:
            call.result().release()
            waits.remove(call)
    await settled()
    assert (memory.reserved_bytes, memory.num_waiting) == (0, 0)


async def test_a_small_call_passes_large_ones_of_its_caller_that_wait() -> None:
    memory = FairMemory(1000 * MB, caller_share=0.5)
    held = await memory.reserve("a", 400 * MB)
    large = begun(memory, "a", 400 * MB)
    await asyncio.sleep(0)
    small = await asyncio.wait_for(memory.reserve("a", MB), 20.0)
    assert not large.done() and memory.num_waiting == 1
    small.release()
    held.release()
    (await large).release()
    assert memory.reserved_bytes == 0
