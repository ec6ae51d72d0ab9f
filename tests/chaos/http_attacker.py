"""A caller of a gateway that wants all of it: ``python -m tests.chaos.http_attacker KIND PORT``."""

import asyncio
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
PIPELINED = HEALTH * (234_000 // len(HEALTH))
CONNECTIONS = 4200


async def pipelining(port: int) -> None:
    """Sends thousands of requests ahead, and reads what comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(PIPELINED)
    while await reader.read(1 << 16):
        if writer.transport.get_write_buffer_size() < len(PIPELINED):
            writer.write(PIPELINED)


async def idle(port: int) -> None:
    """Keeps a connection after one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEALTH)
    while await reader.read(1 << 16):
        pass


async def half(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(BODY)
    await reader.read()


KINDS: dict[str, tuple[int, Callable[[int], Awaitable[None]]]] = {
    "pipelining": (8, pipelining),
    "idle connections": (CONNECTIONS, idle),
    "half bodies": (CONNECTIONS, half),
}


async def attack(kind: str, port: int) -> None:
    """Attacks until it is killed; a connection that ends is made again."""
    count, behave = KINDS[kind]

    async def again() -> None:
        while True:
            with suppress(OSError):
                await behave(port)
            await asyncio.sleep(5)

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(again())
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        print("all are there", flush=True)


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.run(attack(sys.argv[1], int(sys.argv[2])))
