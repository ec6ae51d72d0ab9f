"""Calls between two processes over a socket, here between two ends in one loop."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.support.loop import settled

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import ModelNotFound
from seqserve_server.front.fronts.peer import Handler, Peer, PeerGoneError


@asynccontextmanager
async def connected(**handlers: Handler) -> AsyncIterator[Peer]:
    """Gives one end; the other one has the handlers."""
    ours, theirs = socket.socketpair()
    other = await Peer(handlers, lambda: None).connect(theirs)
    peer = await Peer({}, lambda: None).connect(ours)
    try:
        yield peer
    finally:
        peer.close()
        other.close()
        # Sockets close in the next turns of the loop.
        await settled()


async def test_a_call_returns_what_the_handler_does() -> None:
    may_end = asyncio.Event()

    async def slowly(value: int) -> int:
        await may_end.wait()
        return -value

    async with connected(add=lambda a, b: a + b, slowly=slowly) as peer:
        slow = asyncio.create_task(peer.call("slowly", 5))
        assert await peer.call("add", 2, 3) == 5
        assert not slow.done()
        may_end.set()
        assert await slow == -5


async def test_messages_of_any_size_arrive_whole_and_in_order() -> None:
    received: list[bytes] = []
    async with connected(take=received.append) as peer:
        sizes = [0, 1, 3_000_000, 17, 900_000]
        await asyncio.gather(*(peer.call("take", bytes(size)) for size in sizes))
        assert [len(data) for data in received] == sizes


async def test_errors_of_the_server_arrive_as_they_are_and_others_by_their_text() -> None:
    def refuse() -> None:
        raise ModelNotFound("no model 'x'")

    def fail() -> None:
        raise ZeroDivisionError("never")

    async with connected(refuse=refuse, fail=fail) as peer:
        with pytest.raises(ModelNotFound, match="no model 'x'"):
            await peer.call("refuse")
        with pytest.raises(SeqserveError, match="ZeroDivisionError: never"):
            await peer.call("fail")
        with pytest.raises(SeqserveError, match="KeyError"):
            await peer.call("unknown")


async def test_calls_fail_when_the_other_process_ends() -> None:
    ours, theirs = socket.socketpair()
    gone = asyncio.Event()
    peer = await Peer({}, gone.set).connect(ours)
    call = asyncio.create_task(peer.call("never"))
    await asyncio.sleep(0)
    theirs.close()
    with pytest.raises(PeerGoneError):
        await call
    await asyncio.wait_for(gone.wait(), 60.0)
    with pytest.raises(PeerGoneError):
        await peer.call("later")


async def test_a_caller_that_leaves_hinders_no_other() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(0.01)

    async with connected(wait=wait, add=lambda a, b: a + b) as peer:
        leaving = asyncio.create_task(peer.call("wait"))
        await begun.wait()
        leaving.cancel()
        assert await peer.call("add", 1, 2) == 3
