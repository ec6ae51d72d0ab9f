"""The gRPC transport for threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.message import Message

from seqserve._transport.connection import FORK_GUARD, Connection, Method, callables
from seqserve._transport.status import call_cancelled, client_closed, error_of_call


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
