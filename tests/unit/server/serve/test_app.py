import asyncio
import gc
import os
import sys
import threading
import weakref
from pathlib import Path
from typing import cast

import pytest

from seqserve_server.contract.errors import StartupError
from seqserve_server.serve import app
from seqserve_server.serve.app import is_ready, refuse_few_threads, trim_memory
from seqserve_server.serve.server import Server


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


def test_enough_room_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    refuse_few_threads()
    assert set(threading.enumerate()) <= before


def test_too_little_room_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before, real, started = set(threading.enumerate()), threading.Thread.start, 0

    def start(thread: threading.Thread) -> None:
        nonlocal started
        if started == 5:
            raise RuntimeError("can't start new thread")
        started += 1
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(StartupError, match=r"leaves 5 .* needs 16; raise it: `ulimit -u`"):
        refuse_few_threads()
    assert set(threading.enumerate()) <= before


MB = 64


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.skipif(
    sys.platform != "linux" or os.confstr("CS_GNU_LIBC_VERSION") is None, reason="needs glibc"
)
async def test_freed_memory_between_blocks_in_use_is_returned() -> None:
    # Large enough to be malloc's own, small enough to come from its arena.
    pieces = [bytearray(8 << 10) for _ in range(MB << 7)]
    kept = pieces[::64]
    del pieces
    before_mb = resident_mb()
    trimming = asyncio.create_task(trim_memory(0.01))
    async with asyncio.timeout(30.0):
        while resident_mb() > before_mb - MB / 2:
            await asyncio.sleep(0.01)
    trimming.cancel()
    assert len(kept) == MB << 1


async def test_garbage_is_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the C library cannot trim."""
    monkeypatch.setattr(app, "malloc_trim", lambda: None)

    class Ring:
        def __init__(self) -> None:
            self.itself = self

    ring = Ring()
    left = weakref.ref(ring)
    gc.disable()
    try:
        del ring
        trimming = asyncio.create_task(trim_memory(0.01))
        async with asyncio.timeout(30.0):
            while left() is not None:
                await asyncio.sleep(0.01)
        trimming.cancel()
    finally:
        gc.enable()
