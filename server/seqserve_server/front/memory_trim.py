"""Returns the memory of calls that have ended to the operating system.

A cancelled task group leaves objects that refer to each other, with the request and its texts.
Python collects such garbage when many objects were made since, which an idle server does not make.
"""

from __future__ import annotations

import asyncio
import gc

from seqserve_server.process.memory_trim import TRIM_INTERVAL_S, malloc_trim


async def trim_memory(interval_s: float = TRIM_INTERVAL_S) -> None:
    """Collects garbage and trims the heap at an interval, until it is cancelled."""
    trim = malloc_trim()
    while True:
        await asyncio.sleep(interval_s)
        gc.collect()
        if trim is not None:
            await asyncio.to_thread(trim, 0)
