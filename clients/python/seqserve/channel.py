"""The transports that speak gRPC, plain and of asyncio: one channel each, errors translated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from seqserve.bearer import metadata_of
from seqserve.errors import CallError, Cancelled
from seqserve.groups import client_closed
from seqserve.metadata import Metadata, checked_metadata
from seqserve.status import error_of
from seqserve.target import channel_options, check_name, grpc_target, is_local
from seqserve.tls import TLS
from seqserve.transport import MetadataSource, Method
from seqserve.v1 import generation_pb2_grpc, model_pb2_grpc

T = TypeVar("T")

# What gRPC's asyncio says where a request could not be sent because the call was over. The status
# that ended it comes just before, or just behind.
_NOT_SENT = "Internal error from Core"
_LOOK_AGAIN_S = 0.005
_LOOKS = 200


class GrpcTransport:
    """Opens calls over a gRPC channel; may be shared by threads."""

    def __init__(
        self,
        target: str,
        max_message_bytes: int,
        *,
        tls: TLS | None = None,
        token: str | None = None,
        metadata: MetadataSource | None = None,
    ) -> None:
        """Connects at the first call.

        Args:
            target: See :func:`grpc_target`.
            max_message_bytes: Longest answer to accept.
            tls: How to encrypt; not at all where None.
            token: What the server asks for; nothing is shown where None.
            metadata: Gives what else goes with each call.

        Raises:
            OptionError: The target is malformed, or one of several hosts cannot be resolved; a file
                of ``tls`` is not sound; or the token would be sent in clear.
        """
        self._connection = _Connection(target, max_message_bytes, tls, token, metadata)
        self._channel = self._connection.channel()
        self._callables = _callables(self._channel)

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> _GrpcCall:
        """Sends a request, or one after the other, which a thread of gRPC asks for."""
        callable_ = self._callables[method]
        metadata = self._connection.metadata()
        try:
            if method in (Method.GENERATE_STREAM, Method.GENERATE_BULK):
                return _GrpcCall(callable_(request, timeout=timeout_s, metadata=metadata))
            future = callable_.future(request, timeout=timeout_s, metadata=metadata)
            return _GrpcUnaryCall(future)
        except ValueError:
            # What grpc raises for a channel that was closed.
            raise client_closed() from None

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        self._channel.close()


class AsyncGrpcTransport:
    """Opens calls over a gRPC channel of asyncio; belongs to one event loop."""

    def __init__(
        self,
        target: str,
        max_message_bytes: int,
        *,
        tls: TLS | None = None,
        token: str | None = None,
        metadata: MetadataSource | None = None,
    ) -> None:
        """Connects at the first call; no event loop need run before.

        Args:
            target: See :func:`grpc_target`.
            max_message_bytes: Longest answer to accept.
            tls: How to encrypt; not at all where None.
            token: What the server asks for; nothing is shown where None.
            metadata: Gives what else goes with each call.

        Raises:
            OptionError: The target is malformed, or one of several hosts cannot be resolved; a file
                of ``tls`` is not sound; or the token would be sent in clear.
        """
        self._connection = _Connection(target, max_message_bytes, tls, token, metadata)
        self._channel: grpc.aio.Channel | None = None
        self._callables: dict[Method, Any] = {}
        self._is_closed = False

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> _AsyncGrpcCall:
        """Sends a request, or one after the other."""
        if self._is_closed:
            raise client_closed()
        if self._channel is None:
            self._channel = self._connection.async_channel()
            self._callables = _callables(self._channel)
        metadata = self._connection.metadata()
        call = self._callables[method](request, timeout=timeout_s, metadata=metadata)
        if method is Method.GENERATE_BULK:
            return _AsyncBulkCall(call)
        return _AsyncGrpcCall(call) if method is Method.GENERATE_STREAM else _AsyncUnaryCall(call)

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close(grace=None)


class _Connection:
    """Where a channel goes, how it is encrypted, and what every call on it says."""

    def __init__(
        self,
        target: str,
        max_message_bytes: int,
        tls: TLS | None,
        token: str | None,
        metadata: MetadataSource | None,
    ) -> None:
        self._address = grpc_target(target)
        self._token = metadata_of(token, is_private=tls is not None or is_local(target))
        self._source = metadata
        if tls is not None:
            check_name(target, tls.server_name)
        server_name = tls.server_name if tls else None
        self._options = channel_options(target, max_message_bytes, server_name)
        self._credentials = tls.credentials() if tls else None

    def channel(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._address, self._options)
        return grpc.secure_channel(self._address, self._credentials, self._options)

    def async_channel(self) -> grpc.aio.Channel:
        if self._credentials is None:
            return grpc.aio.insecure_channel(self._address, self._options)
        return grpc.aio.secure_channel(self._address, self._credentials, self._options)

    def metadata(self) -> Metadata:
        given = checked_metadata(self._source()) if self._source else ()
        return (*given, *self._token)


class _GrpcCall:
    """A streaming call."""

    def __init__(self, call: Any) -> None:
        self._call = call

    def __iter__(self) -> Iterator[Any]:
        try:
            yield from self._messages()
        except grpc.RpcError as error:
            raise _translated(error) from error
        except grpc.FutureCancelledError as error:
            raise _cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()

    def _messages(self) -> Iterator[Any]:
        yield from self._call


class _GrpcUnaryCall(_GrpcCall):
    """A unary call, seen as one that gives a single message."""

    def _messages(self) -> Iterator[Any]:
        yield self._call.result()


class _AsyncGrpcCall:
    """A streaming call, awaited."""

    def __init__(self, call: Any) -> None:
        self._call = call

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for message in self._messages():
                yield message
        except grpc.RpcError as error:
            raise await self._error_of(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not the task that waits was cancelled, but the call under it.
            raise _cancelled() from error

    def cancel(self) -> None:
        self._call.cancel()

    async def _error_of(self, error: Any) -> CallError:
        return _translated(error)

    async def _messages(self) -> AsyncIterator[Any]:
        async for message in self._call:
            yield message


class _AsyncUnaryCall(_AsyncGrpcCall):
    """A unary call, awaited, seen as one that gives a single message."""

    async def _messages(self) -> AsyncIterator[Any]:
        yield await self._call


class _AsyncBulkCall(_AsyncGrpcCall):
    """A call with many requests, awaited.

    A request that is on its way when the call ends makes gRPC set a status of its own, which
    replaces the server's or is replaced by it. So the first one is noted.
    """

    def __init__(self, call: Any) -> None:
        super().__init__(call)
        self._first: CallError | None = None
        call.add_done_callback(self._note)

    def _note(self, call: Any) -> None:
        code, details = _at_once(call.code()), _at_once(call.details())
        if code is not grpc.StatusCode.OK and details != _NOT_SENT:
            self._first = error_of(code, details or "", _at_once(call.trailing_metadata()))

    async def _error_of(self, error: Any) -> CallError:
        for _ in range(_LOOKS):
            if self._first is not None:
                return self._first
            if await self._call.details() != _NOT_SENT:
                break
            await asyncio.sleep(_LOOK_AGAIN_S)
        metadata = await self._call.trailing_metadata()
        return error_of(await self._call.code(), await self._call.details() or "", metadata)


def _at_once(coroutine: Coroutine[Any, Any, T]) -> T:
    """Gives what a coroutine gives that need not wait, as those for a status once it is set."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    raise AssertionError("the call is over, but has no status")


def _callables(channel: Any) -> dict[Method, Any]:
    generation = generation_pb2_grpc.GenerationServiceStub(channel)
    model = model_pb2_grpc.ModelServiceStub(channel)
    return {
        Method.GENERATE: generation.Generate,
        Method.GENERATE_STREAM: generation.GenerateStream,
        Method.GENERATE_BATCH: generation.GenerateBatch,
        Method.GENERATE_BULK: generation.GenerateBulk,
        Method.SCORE: generation.Score,
        Method.ATTENTION: generation.Attention,
        Method.LIST_MODELS: model.ListModels,
        Method.GET_MODEL: model.GetModel,
        Method.LOAD_MODEL: model.LoadModel,
        Method.UNLOAD_MODEL: model.UnloadModel,
        Method.SET_TRAFFIC: model.SetTraffic,
    }


def _translated(error: Any) -> CallError:
    return error_of(error.code(), error.details() or "", error.trailing_metadata() or ())


def _cancelled() -> Cancelled:
    return Cancelled("CANCELLED", "the call was cancelled")
