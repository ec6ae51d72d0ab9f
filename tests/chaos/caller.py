"""A client in its own process, which can be killed during its streams."""

import asyncio
import math
import sys

from seqserve import AsyncClient

LONG = 20_000


async def main(target: str, streams: int) -> None:
    async with AsyncClient(target, timeout_s=math.inf) as client:

        async def read() -> None:
            async for _ in client.stream("Nobody waits for music.", min_decoding_length=LONG):
                pass

        await asyncio.gather(*(read() for _ in range(streams)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
