"""Counting calls, and waiting for the last one."""

from __future__ import annotations

import asyncio

from seqserve_server.front.models.loaded_model import ActiveCalls


async def test_waits_for_the_last_one() -> None:
    calls = ActiveCalls()
    assert await calls.wait_idle(0.0)
    calls.enter()
    calls.enter()
    waiting = asyncio.create_task(calls.wait_idle(60.0))
    calls.leave()
    await asyncio.sleep(0)
    assert not waiting.done()
    calls.leave()
    assert await waiting


async def test_time_may_run_out() -> None:
    calls = ActiveCalls()
    calls.enter()
    assert not await calls.wait_idle(0.001)
