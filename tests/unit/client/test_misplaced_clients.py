"""A client belongs to one process, and an asyncio client to one event loop."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seqserve import AsyncClient, MisplacedClient

from .fake_server import FakeServer
from .sessions import listed

FORK = """
import asyncio, os, signal, sys, warnings
from seqserve import AsyncClient, Client, MisplacedClient

target, parent, child = sys.argv[1:]


async def ask(client):
    return (await client.generate("from asyncio", timeout_s=60)).text


async def ask_anew():
    async with AsyncClient(target) as client:
        return await ask(client)


clients = [Client(target)]
if parent == "calls":
    clients[0].generate("first")
if parent == "closes":
    clients[0].generate("first")
    clients.pop().close()
if parent == "asyncio":
    asyncio.run(ask_anew())
if os.fork():
    # Its status is that of the child, or of the alarm that ended it.
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
signal.alarm(50)
try:
    if child == "asyncio":
        print(asyncio.run(ask_anew()), flush=True)
    else:
        client = Client(target) if child == "new" else clients[0]
        print(client.generate("from a child", timeout_s=60).text, flush=True)
except MisplacedClient as error:
    print(error, flush=True)
os._exit(0)
"""


def run(program: str, *arguments: str, **environ: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    env = {**os.environ, **environ}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


MISPLACED = "forked while a client of its parent was open"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    ("parent", "child", "environ", "answer"),
    [
        ("calls", "old", {}, MISPLACED),
        ("calls", "new", {}, MISPLACED),
        ("calls", "asyncio", {}, MISPLACED),
        ("asyncio", "new", {}, MISPLACED),
        ("nothing", "old", {}, "FROM A CHILD"),
        ("nothing", "asyncio", {}, "FROM ASYNCIO"),
        ("closes", "new", {}, "FROM A CHILD"),
        ("calls", "new", {"GRPC_ENABLE_FORK_SUPPORT": "1"}, "FROM A CHILD"),
    ],
)
def test_a_process_forked_while_a_client_was_open_cannot_call(
    server: FakeServer, parent: str, child: str, environ: dict[str, str], answer: str
) -> None:
    assert answer in run(FORK, server.target, parent, child, **environ)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs Linux")
def test_a_fork_waits_until_grpc_has_ended(server: FakeServer) -> None:
    # What is registered first comes last: it sees the threads that are there at the fork.
    forks = """
import os, sys
threads = []
os.register_at_fork(before=lambda: threads.append(len(os.listdir("/proc/self/task"))))
from seqserve import Client

for _ in range(5):
    with Client(sys.argv[1]) as client:
        client.generate("a")
    if not os.fork():
        os._exit(0)
    os.wait()
assert threads == [1] * 5, threads
"""
    run(forks, server.target)


def test_an_async_client_belongs_to_the_event_loop_of_its_first_call(server: FakeServer) -> None:
    client = AsyncClient(server.target)
    assert asyncio.run(client.generate("a")).text == "A"
    for call in (
        client.generate("a"),
        listed(client.stream("a")),
        listed(client.generate_bulk(["a"])),
        listed(client.generate_many(["a"])),
    ):
        with pytest.raises(MisplacedClient, match="belongs to the event loop of its first call"):
            asyncio.run(call)
    asyncio.run(client.close())


def test_an_async_client_may_be_made_outside_its_event_loop(server: FakeServer) -> None:
    client = AsyncClient(server.target)

    async def generate() -> str:
        async with client:
            return (await client.generate("a")).text

    assert asyncio.run(generate()) == "A"
