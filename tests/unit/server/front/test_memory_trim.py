"""Freed memory goes back to the operating system."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import weakref
from pathlib import Path

import pytest

from seqserve_server.front import app
from seqserve_server.front.app import trim_memory

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
