"""Transports over gRPC: one for threads, one for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from seqserve._transport.balance import Balancer, Opened, Place
from seqserve._transport.connection import FORK_GUARD, Connection, Method, callables, health_check
from seqserve._transport.status import call_cancelled, client_closed, error_of, error_of_call
from seqserve.errors import CallError, MisplacedClient

# A stream has many messages, and the others many sources.
_WORK = {Method.GENERATE_STREAM: 2, Method.GENERATE_BATCH: 16, Method.GENERATE_BULK: 16}
S = TypeVar("S")


class GrpcTransport(Balancer[dict[Method, Any]]):
    """Opens calls over channels of gRPC; threads may share it."""

    def __init__(self, connection: Connection) -> None:
        """Stores the settings; the first call connects, so that processes may be forked before."""
        super().__init__(connection.connections, connection.servers)
        self._connection = connection
        self._channels: list[grpc.Channel] = []

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> _GrpcCall:
        """Sends one request, or the requests of an iterator, which a thread of gRPC reads."""
        FORK_GUARD.check()
        metadata = self._connection.metadata()
        place = self.place(_WORK.get(method, 1))
        callable_ = place.stubs[method]
        try:
            if method in (Method.GENERATE_STREAM, Method.GENERATE_BULK):
                stream = callable_(request, timeout=timeout_s, metadata=metadata)
                return _GrpcCall(stream, place, is_unary=False)
            future = callable_.future(request, timeout=timeout_s, metadata=metadata)
            return _GrpcCall(future, place, is_unary=True)
        except ValueError:
            # grpc raises it for a closed channel.
            raise client_closed() from None

    def close(self) -> None:
        """Cancels the calls in flight and refuses new ones."""
        self._refuse()
        for channel in self._channels:
            channel.close()
            FORK_GUARD.closed(channel)

    def _open(self, *, is_first: bool) -> Opened[dict[Method, Any]]:
        channel = FORK_GUARD.open(partial(self._connection.channel, is_first=is_first))
        self._channels.append(channel)
        opened = Opened(callables(channel))
        if not is_first:
            opened.check = health_check(channel).future(b"", wait_for_ready=True)
        return opened


class _GrpcCall:
    def __init__(self, call: Any, place: Place[Any], *, is_unary: bool) -> None:
        self._call, self._place = call, place
        self._is_unary = is_unary

    def __iter__(self) -> Iterator[Any]:
        try:
            if self._is_unary:
                yield self._call.result()
            else:
                yield from self._call
        except grpc.RpcError as error:
            raise self._place.failed(error_of_call(error)) from error
        except grpc.FutureCancelledError as error:
            raise call_cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()
        self._place.leave()


T = TypeVar("T")

# The message of gRPC's asyncio for a request that it could not send because the call was over. The
# status that ended the call arrives just before or just after.
_NOT_SENT = "Internal error from Core"
_POLL_INTERVAL_S = 0.005
_MAX_POLLS = 200


class AsyncChannels(Balancer[S]):
    """Channels of asyncio; they belong to one event loop."""

    def __init__(self, connection: Connection, stubs: Callable[[grpc.aio.Channel], S]) -> None:
        """Stores the settings; the first call connects, so no event loop need run before.

        ``stubs`` returns what makes calls on a channel.
        """
        super().__init__(connection.connections, connection.servers)
        self._connection, self._stubs = connection, stubs
        self._channels: list[grpc.aio.Channel] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def place(self, work: int = 1) -> Place[S]:
        """Returns a place for a call of the running event loop."""
        if self._loop is not None and self._loop is not asyncio.get_running_loop():
            raise MisplacedClient(
                "this AsyncClient belongs to the event loop of its first call; make one for each"
                " asyncio.run()"
            )
        return super().place(work)

    async def connect(self, number: int) -> None:
        """Opens a number of connections, at least one, and returns when all are ready."""
        opened = [self._open(is_first=not place) for place in range(number)]
        await asyncio.gather(*(channel.channel_ready() for channel in self._channels))
        self._ready += opened

    async def close(self) -> None:
        """Cancels the calls in flight and refuses new ones."""
        self._refuse()
        # In another loop they cannot be closed; they end with the client.
        if self._loop is asyncio.get_running_loop():
            for channel in self._channels:
                await channel.close(grace=None)

    def _open(self, *, is_first: bool) -> Opened[S]:
        FORK_GUARD.opened_asyncio()
        self._loop = asyncio.get_running_loop()
        channel = self._connection.aio_channel(is_first=is_first)
        self._channels.append(channel)
        opened = Opened(self._stubs(channel))
        if not is_first:
            opened.check = health_check(channel)(b"", wait_for_ready=True)
        return opened


class AsyncGrpcTransport(AsyncChannels[dict[Method, Any]]):
    """Opens calls over channels of gRPC's asyncio; belongs to one event loop."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, callables)

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> _AsyncGrpcCall:
        """Sends one request, or the requests of an iterator."""
        FORK_GUARD.check()
        metadata = self._connection.metadata()
        place = self.place(_WORK.get(method, 1))
        call = place.stubs[method](request, timeout=timeout_s, metadata=metadata)
        if method is Method.GENERATE_BULK:
            return _AsyncBulkCall(call, place)
        return _AsyncGrpcCall(call, place, is_unary=method is not Method.GENERATE_STREAM)


class _AsyncGrpcCall:
    def __init__(self, call: Any, place: Place[Any], *, is_unary: bool) -> None:
        self._call, self._place = call, place
        self._is_unary = is_unary

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            if self._is_unary:
                yield await self._call
            else:
                async for message in self._call:
                    yield message
        except grpc.RpcError as error:
            raise self._place.failed(await self._error_of(error)) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was cancelled, not the task that waits for it.
            raise call_cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()
        self._place.leave()

    async def _error_of(self, error: Any) -> CallError:
        return error_of_call(error)


class _AsyncBulkCall(_AsyncGrpcCall):
    """A call with many requests.

    If a request is on its way when the call ends, gRPC sets another status, which replaces the
    server's status or is replaced by it. So this class keeps the server's.
    """

    def __init__(self, call: Any, place: Place[Any]) -> None:
        super().__init__(call, place, is_unary=False)
        self._server_error: CallError | None = None
        call.add_done_callback(self._keep_error)

    def _keep_error(self, call: Any) -> None:
        code, details = _at_once(call.code()), _at_once(call.details())
        if code is not grpc.StatusCode.OK and details != _NOT_SENT:
            metadata = _at_once(call.trailing_metadata())
            self._server_error = error_of(code, details or "", metadata)

    async def _error_of(self, error: Any) -> CallError:
        for _ in range(_MAX_POLLS):
            if self._server_error is not None:
                return self._server_error
            if await self._call.details() != _NOT_SENT:
                break
            await asyncio.sleep(_POLL_INTERVAL_S)
        metadata = await self._call.trailing_metadata()
        return error_of(await self._call.code(), await self._call.details() or "", metadata)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("the call is over, but has no status")
