"""Turns of the event loop."""

import asyncio


async def settled() -> None:
    """Lets the tasks that can run go as far as they can."""
    for _ in range(10):
        await asyncio.sleep(0)
