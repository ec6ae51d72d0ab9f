"""A gRPC server that takes calls as fast as they arrive, and refuses at once what it cannot serve.

gRPC's server for asyncio takes one call of a method at a time, and the next one some turns of the
event loop later. In overload calls pile up in gRPC's core, which then ends them with a reset stream
or CANCELLED, without a trace. It also waits for a future of every method before each call. Here
many calls are taken in one turn, and started as gRPC would start them; its own loop only waits for
the end. Others are refused by one operation, without a task, an interceptor or their request. Calls
of unknown methods are refused too: gRPC's loop, and with it the server, would end at a name that is
not UTF-8.

gRPC has no public way to do that, so this file uses private parts of `grpc.aio`. If a release lacks
one of them, :func:`new_server` makes gRPC's own server, and the log says so.
"""

import asyncio
import inspect
import json
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from typing import Any, cast

import grpc
from grpc._cython import cygrpc
from grpc.aio import _server

from seqserve_server.front.overload.admission import Admission
from seqserve_server.front.overload.memory import HELD, PEER, Reservation, RoundRobin
from seqserve_server.process import logs

# Calls of one method that can be taken in one turn of the event loop: at first, and at most.
_CALLS_A_TURN = 8
_MOST_A_TURN = 256
# Their requests are read and go to the engine together; a start takes some tenths of a millisecond.
_STARTS_A_TURN = 8
# Time for the message of a call, equal to the time for a handshake.
_SILENCE_S = 20.0

_FUNCTIONS = {
    "_handle_rpc": "method_name method_resolver interceptors rpc_state loop concurrency_exceeded",
    "_schedule_rpc_coro": "rpc_coro rpc_state loop method_name",
}

_log = logging.getLogger(__name__)


class _Arrivals:
    """Admitted calls of one method; a few start in a turn of the loop, from their peers in turn."""

    def __init__(
        self,
        accept: Callable[[str, object], set[Reservation] | None],
        start: Callable[[str, set[Reservation], object], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.takers = self.taken = 0
        """Tasks that take calls, and how many calls they have taken in this turn of the loop."""
        self.is_blocked = False
        """Whether there was no memory for the next call of any peer."""
        self._admitted: RoundRobin[object] = RoundRobin()
        self._accept, self._start, self._loop = accept, start, loop
        self._end: asyncio.Future[object] | None = None
        self._started = 0

    def until_end(self) -> asyncio.Future[object]:
        """Returns what gets the error with which the takers end."""
        self._end = self._loop.create_future()
        return self._end

    def end(self, error: Exception) -> None:
        if self._end is not None and not self._end.done():
            self._end.set_exception(error)

    def take(self) -> None:
        self._begin_turn()
        self.taken += 1

    def add(self, state: object, peer: str) -> None:
        self._admitted.add(peer, state)
        self.dispatch()

    def dispatch(self) -> None:
        """Starts calls, if few have started in this turn and there is memory for them."""
        while self._admitted and self._started < _STARTS_A_TURN:
            if self._admitted.next(self._starts) is None:
                self.is_blocked = True
                return
        self.is_blocked = False

    def _starts(self, peer: str, state: object) -> bool:
        held = self._accept(peer, state)
        if held is None:
            return False
        self._begin_turn()
        self._started += 1
        self._start(peer, held, state)
        return True

    def _begin_turn(self) -> None:
        if not (self.taken or self._started):
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.taken = self._started = 0
        self.dispatch()


class _Acceptor(cygrpc.AioServer):  # type: ignore[misc]
    """The part of gRPC's server that takes calls and starts them."""

    def __init__(
        self,
        admission: Admission,
        interceptors: tuple[grpc.aio.ServerInterceptor, ...],  # type: ignore[type-arg]
        arguments: Sequence[tuple[str, Any]],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(loop, None, (), interceptors, arguments, None)
        self._admission = admission
        self._event_loop = loop
        self._around = interceptors
        self._handlers: dict[str, object] = {}
        self._arrivals: dict[bytes | None, _Arrivals] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._channelz_id = max(_server_ids(), default=0)
        self._taken = 0
        self._never_accepted = 0
        admission.messages.on_free = self._dispatch
        self._ending_silent = loop.create_task(self._end_silent())

    def add_registered_method_handlers(self, handlers: dict[str, object]) -> None:
        """Adds handlers by the paths of their methods."""
        super().add_registered_method_handlers(handlers)
        self._handlers |= handlers

    def resolve_handler(self, details: grpc.HandlerCallDetails) -> object:
        """Returns the handler of a call; gRPC asks for it after the interceptors."""
        return self._handlers[details.method]

    async def _end_silent(self) -> None:
        """Ends calls whose message does not come, where others wait for their memory."""
        before: set[Reservation] = set()
        while True:
            await asyncio.sleep(_SILENCE_S)
            unread = dict(self._admission.messages.unread)
            if any(arrivals.is_blocked for arrivals in self._arrivals.values()):
                for state in (call for message, call in unread.items() if message in before):
                    context = cygrpc._ServicerContext(state, None, None, self._event_loop)
                    reason = f"no message came for {_SILENCE_S:.0f} s, and others wait"
                    await _end(context, grpc.StatusCode.DEADLINE_EXCEEDED, reason)
            before = set(unread)

    def _dispatch(self) -> None:
        for arrivals in self._arrivals.values():
            if arrivals.is_blocked:
                arrivals.dispatch()

    def calls_never_accepted(self) -> int:
        with suppress(ValueError):  # once the server has stopped
            server = json.loads(cygrpc.channelz_get_server(self._channelz_id))["server"]
            # Read after it, so that a call that is taken meanwhile does not seem to be lost.
            self._never_accepted = int(server["data"]["callsStarted"]) - self._taken
        return self._never_accepted

    def _make_request_call_future(self, method: bytes | None) -> asyncio.Future[object]:
        """Overrides what gRPC's loop asks for the next call of a method; None is any unknown one.

        No call ever comes: each is started here. Only the error that ends the server does.
        """
        if method not in self._arrivals:
            path = (method or b"").decode()
            accept, start = partial(self._admission.accept, path), partial(self._start, path)
            self._arrivals[method] = _Arrivals(accept, start, self._event_loop)
            self._add_takers(method, _CALLS_A_TURN)
        return self._arrivals[method].until_end()

    def _start(self, path: str, peer: str, held: set[Reservation], state: object) -> None:
        context = copy_context()
        context.run(PEER.set, peer)
        context.run(HELD.set, held)
        call = cygrpc._handle_rpc(path, self, self._around, state, self._event_loop, False)
        self._run(cygrpc._schedule_rpc_coro(call, state, self._event_loop, path), context)

    def _run(self, work: Coroutine[Any, Any, None], context: Context | None = None) -> None:
        task = self._event_loop.create_task(work, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _add_takers(self, method: bytes | None, takers: int) -> None:
        self._arrivals[method].takers += takers
        for _ in range(takers):
            self._run(self._take(method))

    async def _take(self, method: bytes | None) -> None:
        arrivals = self._arrivals[method]
        while True:
            try:
                call = self._request_registered_call(method) if method else self._request_call()
                state = await call
            except Exception as error:  # the server stops
                self._ending_silent.cancel()
                arrivals.end(error)
                return
            self._taken += 1
            arrivals.take()
            if 2 * arrivals.taken > arrivals.takers and arrivals.takers < _MOST_A_TURN:
                # More may have come in one turn than could be taken.
                self._add_takers(method, arrivals.takers)
            await self._pass(method, state)
            # A call that has ended must not stay until the next one comes.
            del state

    async def _pass(self, method: bytes | None, state: object) -> None:
        context = cygrpc._ServicerContext(state, None, None, self._event_loop)
        try:
            if method is None:
                await _end(context, grpc.StatusCode.UNIMPLEMENTED, "the server has no such method")
                return
            peer = self._admission.peer_of(context)
            if await self._admission.admits(method.decode(), context, peer):
                self._arrivals[method].add(state, peer)
        except Exception:
            # Nobody would replace the taker, and the calls after this one would wait for ever.
            _log.exception("a call could not be admitted")
            await _end(context, grpc.StatusCode.INTERNAL, "a fault of the server")


async def _end(context: Any, code: grpc.StatusCode, details: str) -> None:
    try:
        await context.abort(code, details)
    except grpc.aio.BaseError as ended:  # as it should be, or the client is gone
        # gRPC keeps the error with the call, and the error would keep the call.
        ended.__traceback__ = ended.__context__ = None


def _server_ids() -> Iterator[int]:
    # The servers of this process, as channelz, gRPC's own statistics, numbers them.
    last, is_end = 0, False
    while not is_end:
        page = json.loads(cygrpc.channelz_get_servers(last + 1))
        for server in page.get("server", ()):
            last = int(server["ref"]["serverId"])
            yield last
        is_end = page.get("end", False)


class AcceptingServer(_server.Server):
    """gRPC's server with an acceptor."""

    def __init__(
        self,
        admission: Admission,
        interceptors: Sequence[grpc.aio.ServerInterceptor],  # type: ignore[type-arg]
        arguments: Sequence[tuple[str, Any]],
    ) -> None:
        """Makes a server that listens nowhere yet, with the arguments of `new_server`."""
        self._loop = asyncio.get_running_loop()
        self._server = _Acceptor(admission, tuple(interceptors), arguments, self._loop)

    def calls_never_accepted(self) -> int:
        """Counts calls that gRPC's core has received and this server has not; thread-safe.

        They wait for their turn now, or gRPC has ended them itself.
        """
        never_accepted: int = self._server.calls_never_accepted()
        return never_accepted


def missing_parts() -> list[str]:
    """Lists the private parts of grpcio that this file needs and the installed release lacks."""
    parts = ("AioServer", "_ServicerContext", "channelz_get_server", "channelz_get_servers")
    methods = ("_make_request_call_future", "_request_call", "_request_registered_call")
    missing = [f"AioServer.{name}" for name in methods if not hasattr(cygrpc.AioServer, name)]
    missing += [name for name in parts if not hasattr(cygrpc, name)]
    for name, parameters in _FUNCTIONS.items():
        function = getattr(cygrpc, name, None)
        if function is None or [*inspect.signature(function).parameters] != parameters.split():
            missing.append(f"{name} of {parameters}")
    return missing


def new_server(
    admission: Admission,
    interceptors: Sequence[grpc.aio.ServerInterceptor],  # type: ignore[type-arg]
    arguments: Sequence[tuple[str, Any]],
) -> grpc.aio.Server:
    """Makes the server, with gRPC's channel arguments."""
    # Another release may construct it otherwise.
    with suppress(TypeError):
        if not missing_parts():
            return cast(grpc.aio.Server, AcceptingServer(admission, interceptors, arguments))
    facts = {"grpcio": grpc.__version__}
    logs.event("calls are not refused on arrival", facts, logging.WARNING)
    return grpc.aio.server(interceptors=interceptors, options=arguments)
