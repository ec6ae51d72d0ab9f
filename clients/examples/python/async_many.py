"""Many texts at once, their answers in order: ``python async_many.py [TARGET] < lines.txt``.

The server decodes them together; the client holds at most a few hundred at a time, so the input may
be of any length.
"""

import asyncio
import sys

from seqserve import AsyncClient, SeqserveError


async def main(target: str) -> None:
    """Prints an answer for every non-empty line of standard input."""
    sources = (line.strip() for line in sys.stdin if line.strip())
    async with AsyncClient(target) as client:
        async for result in client.generate_many(sources, concurrency=64):
            print(result.text, flush=True)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "localhost:50051"))
    except SeqserveError as error:
        raise SystemExit(str(error)) from None
