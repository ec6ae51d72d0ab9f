"""What was freed is no longer held."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from seqserve_server.front import memory_trim as freed
from seqserve_server.front.memory_trim import give_back_freed

MB = 64


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@pytest.mark.skipif(
    sys.platform != "linux" or os.confstr("CS_GNU_LIBC_VERSION") is None, reason="needs glibc"
)
async def test_what_lies_between_pieces_in_use_goes_back() -> None:
    # Large enough to be malloc's own, small enough to come from its arena.
    pieces = [bytearray(8 << 10) for _ in range(MB << 7)]
    kept = pieces[::64]
    del pieces
    before_mb = resident_mb()
    giving = asyncio.create_task(give_back_freed(0.01))
    async with asyncio.timeout(30.0):
        while resident_mb() > before_mb - MB / 2:
            await asyncio.sleep(0.01)
    giving.cancel()
    assert len(kept) == MB << 1


async def test_where_nothing_is_kept_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed, "_trim", lambda: None)
    await give_back_freed(0.0)
