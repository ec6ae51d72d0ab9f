"""Transports over gRPC: one for threads, one for asyncio."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from seqserve._transport.connection import FORK_GUARD, Connection, Method, callables
from seqserve._transport.status import call_cancelled, client_closed, error_of, error_of_call
from seqserve.errors import CallError, MisplacedClient


class GrpcTransport:
    """Opens calls over one gRPC channel; threads may share it."""

    def __init__(self, connection: Connection) -> None:
        """Stores the settings; the first call connects, so that processes may be forked before."""
        self._connection = connection
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._callables: dict[Method, Any] = {}
        self._is_closed = False

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> _GrpcCall:
        """Sends one request, or the requests of an iterator, which a thread of gRPC reads."""
        callable_ = self._callable_of(method)
        metadata = self._connection.metadata()
        try:
            if method in (Method.GENERATE_STREAM, Method.GENERATE_BULK):
                stream = callable_(request, timeout=timeout_s, metadata=metadata)
                return _GrpcCall(stream, is_unary=False)
            future = callable_.future(request, timeout=timeout_s, metadata=metadata)
            return _GrpcCall(future, is_unary=True)
        except ValueError:
            # grpc raises it for a closed channel.
            raise client_closed() from None

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        with self._lock:
            self._is_closed = True
        if self._channel is not None:
            self._channel.close()
            FORK_GUARD.closed(self._channel)

    def _callable_of(self, method: Method) -> Any:
        FORK_GUARD.check()
        with self._lock:
            if self._is_closed:
                raise client_closed()
            if self._channel is None:
                self._channel = FORK_GUARD.open(self._connection.channel)
                self._callables = callables(self._channel)
        return self._callables[method]


class _GrpcCall:
    """A call; a unary one is a stream of one message."""

    def __init__(self, call: Any, *, is_unary: bool) -> None:
        self._call = call
        self._is_unary = is_unary

    def __iter__(self) -> Iterator[Any]:
        try:
            if self._is_unary:
                yield self._call.result()
            else:
                yield from self._call
        except grpc.RpcError as error:
            raise error_of_call(error) from error
        except grpc.FutureCancelledError as error:
            raise call_cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()


T = TypeVar("T")

# The message of gRPC's asyncio for a request that it could not send because the call was over. The
# status that ended the call arrives just before or just after.
_NOT_SENT = "Internal error from Core"
_POLL_INTERVAL_S = 0.005
_MAX_POLLS = 200


class AsyncGrpcTransport:
    """Opens calls over one gRPC channel of asyncio; belongs to one event loop."""

    def __init__(self, connection: Connection) -> None:
        """Stores the settings; the first call connects, so no event loop need run before."""
        self._connection = connection
        self._channel: grpc.aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callables: dict[Method, Any] = {}
        self._is_closed = False

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> _AsyncGrpcCall:
        """Sends one request, or the requests of an iterator."""
        if self._is_closed:
            raise client_closed()
        FORK_GUARD.check()
        loop = asyncio.get_running_loop()
        if self._channel is None:
            self._loop = loop
            self._channel = self._connection.aio_channel()
            self._callables = callables(self._channel)
            FORK_GUARD.opened_asyncio()
        elif self._loop is not loop:
            raise MisplacedClient(
                "this AsyncClient belongs to another event loop, that of its first call; make one"
                " for each asyncio.run()"
            )
        metadata = self._connection.metadata()
        call = self._callables[method](request, timeout=timeout_s, metadata=metadata)
        if method is Method.GENERATE_BULK:
            return _AsyncBulkCall(call)
        return _AsyncGrpcCall(call, is_unary=method is not Method.GENERATE_STREAM)

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        self._is_closed = True
        # In another loop it cannot be closed; it ends with the client.
        if self._channel is not None and self._loop is asyncio.get_running_loop():
            await self._channel.close(grace=None)


class _AsyncGrpcCall:
    """A call; a unary one is a stream of one message."""

    def __init__(self, call: Any, *, is_unary: bool) -> None:
        self._call = call
        self._is_unary = is_unary

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            if self._is_unary:
                yield await self._call
            else:
                async for message in self._call:
                    yield message
        except grpc.RpcError as error:
            raise await self._error_of(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The call was cancelled, not the task that waits for it.
            raise call_cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()

    async def _error_of(self, error: Any) -> CallError:
        return error_of_call(error)


class _AsyncBulkCall(_AsyncGrpcCall):
    """A call with many requests.

    If a request is on its way when the call ends, gRPC sets another status, which replaces the
    server's status or is replaced by it. So this class keeps the server's.
    """

    def __init__(self, call: Any) -> None:
        super().__init__(call, is_unary=False)
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
