"""A gRPC server that takes calls as fast as they come and refuses at once those beyond its backlog.

gRPC's server for asyncio takes one call of a method at a time, and the next one some turns of the
event loop later. In overload calls then pile up in gRPC's core, which ends them without telling
anybody: with a reset stream, or CANCELLED. Here many calls are taken in a turn. Those that the
backlog admits go to gRPC's loop; each other one is refused by one operation, without a task, an
interceptor or its request. So is a call of a method that there is not: gRPC's loop would end, and
the server with it, at a name that is not UTF-8.

gRPC has no public way to do that, so this file uses what `grpc.aio` is made of. Where a release is
made otherwise, :func:`new_server` makes gRPC's own server, and the log says so.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

from seqserve_server.front.call.gate import Gate
from seqserve_server.process import logs

# Calls of one method that can be taken in one turn of the event loop: at first, and at most.
_CALLS_A_TURN = 8
_MOST_A_TURN = 256


class _Arrivals:
    """Calls of one method on their way to gRPC's loop, which takes them one by one."""

    def __init__(self, taken: Callable[[str], None]) -> None:
        self.takers = self.idle_takers = 0
        """Tasks that take calls, and how many of them wait for one."""
        self._admitted: deque[tuple[object, str]] = deque()
        self._taken = taken
        self._wanted: asyncio.Future[object] | None = None

    def next(self) -> asyncio.Future[object]:
        """Returns the next call, once it is there."""
        self._wanted = asyncio.get_running_loop().create_future()
        self._hand_over()
        return self._wanted

    def add(self, state: object, peer: str) -> None:
        """Adds a call of a peer."""
        self._admitted.append((state, peer))
        self._hand_over()

    def end(self, error: Exception) -> None:
        """Tells gRPC's loop that no more calls come."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_exception(error)

    def _hand_over(self) -> None:
        if self._admitted and self._wanted is not None and not self._wanted.done():
            state, peer = self._admitted.popleft()
            self._taken(peer)
            self._wanted.set_result(state)


class _Acceptor(cygrpc.AioServer):  # type: ignore[misc]
    """Takes the calls of gRPC's server."""

    def __init__(self, gate: Gate, loop: asyncio.AbstractEventLoop, *arguments: Any) -> None:
        super().__init__(loop, *arguments)
        self._gate = gate
        self._event_loop = loop
        self._arrivals: dict[bytes | None, _Arrivals] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._channelz_id = max(_server_ids())
        self._taken = 0
        self._not_taken = 0

    def count_not_taken(self) -> int:
        with suppress(ValueError):  # once the server has stopped
            server = json.loads(cygrpc.channelz_get_server(self._channelz_id))["server"]
            # Read after it, so that a call that is taken meanwhile does not seem to be lost.
            self._not_taken = int(server["data"]["callsStarted"]) - self._taken
        return self._not_taken

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[object]:
        """Returns the next call of a method; gRPC's loop asks for it again and again.

        Of methods that there are not, which are None, none comes.
        """
        if method is not None and method.decode() not in self._gate.methods:
            future: asyncio.Future[object] = super()._make_request_call_future(method)
            future.add_done_callback(self._count)
            return future
        if method not in self._arrivals:
            self._arrivals[method] = _Arrivals(self._gate.taken)
            self._begin_to_take(method, _CALLS_A_TURN)
        return self._arrivals[method].next()

    def _begin_to_take(self, method: bytes | None, takers: int) -> None:
        self._arrivals[method].takers += takers
        for _ in range(takers):
            task = self._event_loop.create_task(self._take(method))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _count(self, future: asyncio.Future[object]) -> None:
        if not future.cancelled() and future.exception() is None:
            self._taken += 1

    async def _take(self, method: bytes | None) -> None:
        name = None if method is None else method.decode()
        arrivals = self._arrivals[method]
        while True:
            arrivals.idle_takers += 1
            try:
                state = await (
                    self._request_call()
                    if method is None
                    else self._request_registered_call(method)
                )
            except Exception as error:  # the server stops
                arrivals.end(error)
                return
            arrivals.idle_takers -= 1
            self._taken += 1
            if not arrivals.idle_takers and arrivals.takers < _MOST_A_TURN:
                # More have come in one turn than could be taken.
                self._begin_to_take(method, arrivals.takers)
            context = cygrpc._ServicerContext(state, None, None, self._event_loop)
            peer = self._gate.peer_of(context)
            if name is None:
                await self._gate.refuse_unknown(context)
            elif not await self._gate.refuses(name, context, peer):
                arrivals.add(state, peer)
            # A call that has ended must not stay until the next one comes.
            del state, context


def _server_ids() -> list[int]:
    """Lists the servers of this process as channelz, gRPC's own statistics, numbers them."""
    ids, is_end = [0], False
    while not is_end:
        page = json.loads(cygrpc.channelz_get_servers(ids[-1] + 1))
        ids += [int(server["ref"]["serverId"]) for server in page.get("server", ())]
        is_end = page.get("end", False)
    return ids


class AcceptingServer(_server.Server):
    """gRPC's server, but with an acceptor."""

    def __init__(
        self,
        gate: Gate,
        interceptors: Sequence[grpc.aio.ServerInterceptor],  # type: ignore[type-arg]
        arguments: Sequence[tuple[str, Any]],
    ) -> None:
        """Makes a server that listens nowhere yet; takes what :func:`new_server` does."""
        self._loop = asyncio.get_running_loop()
        self._server = _Acceptor(gate, self._loop, None, (), interceptors, arguments, None)

    def calls_not_taken(self) -> int:
        """Counts calls that reached gRPC's core and not this server; may be called from any thread.

        They are those that wait for their turn now, and all that gRPC has ended itself.
        """
        not_taken: int = self._server.count_not_taken()
        return not_taken


def new_server(
    gate: Gate,
    interceptors: Sequence[grpc.aio.ServerInterceptor],  # type: ignore[type-arg]
    arguments: Sequence[tuple[str, Any]],
) -> grpc.aio.Server:
    """Makes the server.

    Args:
        gate: Says which calls are served.
        interceptors: Surround those.
        arguments: Channel arguments.
    """
    parts = ("_make_request_call_future", "_request_call", "_request_registered_call")
    # Another release may construct it otherwise.
    with suppress(TypeError):
        if all(hasattr(cygrpc.AioServer, name) for name in parts):
            return cast(grpc.aio.Server, AcceptingServer(gate, interceptors, arguments))
    facts = {"grpcio": grpc.__version__}
    logs.event("calls are not refused on arrival", facts, logging.WARNING)
    return grpc.aio.server(interceptors=interceptors, options=arguments)
