"""The transports that speak gRPC, plain and of asyncio: one channel each, errors translated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message import Message

from seqserve.errors import CallError, Cancelled
from seqserve.status import error_of
from seqserve.target import channel_options, grpc_target
from seqserve.transport import Method
from seqserve.v1 import generation_pb2_grpc, model_pb2_grpc


class GrpcTransport:
    """Opens calls over a gRPC channel; may be shared by threads."""

    def __init__(self, target: str, max_message_bytes: int) -> None:
        """Connects at the first call.

        Args:
            target: See :func:`grpc_target`.
            max_message_bytes: Longest answer to accept.

        Raises:
            OptionError: The target is malformed, or one of several hosts cannot be resolved.
        """
        options = channel_options(target, max_message_bytes)
        self._channel = grpc.insecure_channel(grpc_target(target), options)
        self._callables = _callables(self._channel)

    def call(self, method: Method, request: Message, timeout_s: float | None) -> _GrpcCall:
        """Sends a request."""
        callable_ = self._callables[method]
        try:
            if method is Method.GENERATE_STREAM:
                return _GrpcCall(callable_(request, timeout=timeout_s))
            return _GrpcUnaryCall(callable_.future(request, timeout=timeout_s))
        except ValueError:
            # What grpc raises for a channel that was closed.
            raise _closed() from None

    def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        self._channel.close()


class AsyncGrpcTransport:
    """Opens calls over a gRPC channel of asyncio; belongs to one event loop."""

    def __init__(self, target: str, max_message_bytes: int) -> None:
        """Connects at the first call; no event loop need run before.

        Args:
            target: See :func:`grpc_target`.
            max_message_bytes: Longest answer to accept.

        Raises:
            OptionError: The target is malformed, or one of several hosts cannot be resolved.
        """
        self._target = grpc_target(target)
        self._options = channel_options(target, max_message_bytes)
        self._channel: grpc.aio.Channel | None = None
        self._callables: dict[Method, Any] = {}
        self._is_closed = False

    def call(self, method: Method, request: Message, timeout_s: float | None) -> _AsyncGrpcCall:
        """Sends a request."""
        if self._is_closed:
            raise _closed()
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self._target, self._options)
            self._callables = _callables(self._channel)
        call = self._callables[method](request, timeout=timeout_s)
        return _AsyncGrpcCall(call) if method is Method.GENERATE_STREAM else _AsyncUnaryCall(call)

    async def close(self) -> None:
        """Cancels the calls under way and refuses new ones."""
        self._is_closed = True
        if self._channel is not None:
            await self._channel.close(grace=None)


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
            raise Cancelled("CANCELLED", "the call was cancelled") from error

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
            raise _translated(error) from error

    def cancel(self) -> None:
        self._call.cancel()

    async def _messages(self) -> AsyncIterator[Any]:
        async for message in self._call:
            yield message


class _AsyncUnaryCall(_AsyncGrpcCall):
    """A unary call, awaited, seen as one that gives a single message."""

    async def _messages(self) -> AsyncIterator[Any]:
        yield await self._call


def _callables(channel: Any) -> dict[Method, Any]:
    generation = generation_pb2_grpc.GenerationServiceStub(channel)
    model = model_pb2_grpc.ModelServiceStub(channel)
    return {
        Method.GENERATE: generation.Generate,
        Method.GENERATE_STREAM: generation.GenerateStream,
        Method.GENERATE_BATCH: generation.GenerateBatch,
        Method.SCORE: generation.Score,
        Method.ATTENTION: generation.Attention,
        Method.LIST_MODELS: model.ListModels,
        Method.GET_MODEL: model.GetModel,
    }


def _translated(error: Any) -> CallError:
    return error_of(error.code(), error.details() or "", error.trailing_metadata() or ())


def _closed() -> Cancelled:
    return Cancelled("CANCELLED", "the client is closed")
