"""The parts put together: what a probe is told of the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

import pytest

from seqserve_server.front import app
from seqserve_server.front.rpc.server import Server


class Ready:
    is_ready = True


READY = cast(Server, Ready())


async def test_ready_is_what_the_server_says() -> None:
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(app._is_ready, READY, loop)


async def test_a_loop_that_hangs_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_ANSWER_S", 0.05)
    answers: list[bool] = []
    loop = asyncio.get_running_loop()
    probe = threading.Thread(target=lambda: answers.append(app._is_ready(READY, loop)))
    probe.start()
    # The loop does nothing else meanwhile.
    probe.join(10)
    assert answers == [False]
