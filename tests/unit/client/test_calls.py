"""Groups of calls: cancelling one ends its calls and delays."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from seqserve._async.calls import CallGroup as AsyncCallGroup
from seqserve._sync.calls import CallGroup
from seqserve._transport.connection import Method
from seqserve.errors import Cancelled
from seqserve.v1 import generation_pb2

from .fake_server import PATIENCE_S
from .fake_transport import AsyncFakeTransport, FakeTransport

REQUEST = generation_pb2.GenerateRequest()


def test_a_group_cancels_its_calls_and_takes_no_more() -> None:
    transport = FakeTransport([[], [], []])
    group = CallGroup(transport)
    calls = [group.call(Method.GENERATE, REQUEST, None) for _ in range(2)]
    other = transport.call(Method.GENERATE, REQUEST, None)
    group.cancel()
    assert len(calls) == 2
    assert [call.is_cancelled for call in transport.calls] == [True, True, False]
    assert not other.is_cancelled and not transport.is_closed
    for refused in (lambda: group.call(Method.GENERATE, REQUEST, None), group.group):
        with pytest.raises(Cancelled):
            refused()


def test_a_group_within_another_leaves_the_rest_alone() -> None:
    transport = FakeTransport([[], [], []])
    outer = CallGroup(transport)
    first, second = outer.group(), outer.group()
    calls = [each.call(Method.GENERATE, REQUEST, None) for each in (outer, first, second)]
    first.cancel()
    assert [call.is_cancelled for call in transport.calls] == [False, True, False]
    outer.cancel()
    assert [call.is_cancelled for call in transport.calls] == [True] * 3 and len(calls) == 3
    with pytest.raises(Cancelled):
        second.wait(PATIENCE_S)


def test_a_call_opened_while_the_group_is_cancelled_is_cancelled() -> None:
    class Slow(FakeTransport):
        def call(self, *arguments: object) -> object:  # type: ignore[override]
            group.cancel()
            return super().call(*arguments)  # type: ignore[arg-type]

    transport = Slow([[]])
    group = CallGroup(transport)
    with pytest.raises(Cancelled):
        group.call(Method.GENERATE, REQUEST, None)
    assert transport.calls[0].is_cancelled


def test_cancelling_a_group_wakes_waiting_threads() -> None:
    group = CallGroup(FakeTransport([]))
    within = group.group()
    within.wait(0.0)
    failures: list[Cancelled] = []

    def wait() -> None:
        try:
            within.wait(PATIENCE_S)
        except Cancelled as error:
            failures.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    began_s = time.monotonic()
    group.cancel()
    waiting.join()
    assert time.monotonic() - began_s < PATIENCE_S / 2
    assert [str(error) for error in failures] == ["CANCELLED: the client is closed"]


async def test_cancelling_a_group_wakes_waiting_tasks() -> None:
    group = AsyncCallGroup(AsyncFakeTransport([]))
    await group.wait(0.0)
    waiting = [asyncio.create_task(group.wait(PATIENCE_S)) for _ in range(2)]
    await asyncio.sleep(0)
    group.cancel()
    done, _ = await asyncio.wait(waiting, timeout=PATIENCE_S / 2)
    assert [type(task.exception()) for task in done] == [Cancelled] * 2
    with pytest.raises(Cancelled):
        await group.wait(0.0)
    with pytest.raises(Cancelled):
        group.call(Method.GENERATE, REQUEST, None)


async def test_a_waiting_task_can_be_cancelled() -> None:
    group = AsyncCallGroup(AsyncFakeTransport([]))
    waiting = asyncio.create_task(group.wait(PATIENCE_S))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
