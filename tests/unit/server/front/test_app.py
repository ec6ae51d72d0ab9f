"""Readiness of the server, as a probe sees it."""

from __future__ import annotations

import asyncio
import threading
from typing import cast

from seqserve_server.front.app import is_ready
from seqserve_server.front.services.server import Server


class Ready:
    is_ready = True


READY = cast(Server, Ready())


async def test_readiness_is_that_of_the_server() -> None:
    loop = asyncio.get_running_loop()
    assert await asyncio.to_thread(is_ready, READY, loop)


async def test_a_loop_that_hangs_is_not_ready() -> None:
    answers: list[bool] = []
    loop = asyncio.get_running_loop()
    probe = threading.Thread(target=lambda: answers.append(is_ready(READY, loop, timeout_s=0.05)))
    probe.start()
    # It blocks the loop.
    probe.join(10)
    assert answers == [False]
