"""The wire side of a call: handlers that get malformed requests, the end of a call, encoding.

gRPC answers bytes that protobuf cannot parse with INTERNAL, a fault of the server. Here a handler
gets them as :class:`Unreadable`, an error that it can answer with INVALID_ARGUMENT.

Source: protobuf records of wire type LEN, https://protobuf.dev/programming-guides/encoding/.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Unreadable
from seqserve_server.front.overload.memory import HELD

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_REQUEST = generation_pb2.GenerateBulkRequest.REQUEST_FIELD_NUMBER
_MORE = generation_pb2.GenerateBulkRequest.MORE_FIELD_NUMBER
_MAKERS: dict[tuple[bool, bool], Any] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def tolerant(
    deserialize: Callable[[bytes], Message], is_whole: bool = False
) -> Callable[[bytes], Message | Unreadable]:
    """Wraps a deserializer to return :class:`Unreadable`; a whole message needs no more memory."""

    def read(data: bytes) -> Message | Unreadable:
        if is_whole:
            for reservation in HELD.get(()):
                reservation.shrink(len(data))
        try:
            return deserialize(data)
        except Exception as error:
            return Unreadable(f"is damaged, or has text that is not UTF-8: {error}", data)

    return read


def at_end(end: Callable[[], object]) -> None:
    """Has a function called when gRPC no longer holds the answer of the call whose task this is.

    A callback of gRPC's context would hold the context, which holds the callback.
    """
    task = asyncio.current_task()
    assert task is not None
    task.add_done_callback(lambda _: end())


async def aborted(
    context: Context, code: grpc.StatusCode, details: str, trailers: Any = ()
) -> NoReturn:
    """Ends a call with a status.

    gRPC keeps the error that it raises, which would keep all that the call has held. So the error
    forgets where it was raised.
    """
    try:
        await context.abort(code, details, trailers)
    except grpc.aio.AbortError as error:
        at_end(partial(forget_origin, error))
        raise
    raise AssertionError("abort always raises")


def forget_origin(error: BaseException) -> None:
    """Has an error forget where it was raised, and with that what was held there."""
    error.__traceback__ = error.__context__ = None


Requests: TypeAlias = Message | Unreadable | AsyncIterator[Message | Unreadable]


async def write(context: Context, response: Message) -> None:
    """Sends a response of a stream; ends as a cancelled call does if the client is gone."""
    try:
        await context.write(response)
    except grpc.aio.InternalError as error:
        # The client went away, or the deadline passed.
        raise asyncio.CancelledError from error


def readable(request: Requests) -> Message | AsyncIterator[Message | Unreadable]:
    """Returns the input of a handler; raises an only request that cannot be parsed."""
    # The handler itself checks each request of a stream.
    if isinstance(request, Unreadable):
        raise request
    return request


def behaviour_of(handler: Handler) -> Any:
    """Returns the function that a handler runs."""
    return handler.unary_unary or handler.unary_stream or handler.stream_stream


def rewrapped(handler: Handler, behaviour: Any) -> Handler:
    """Makes a handler of the same shape that runs another function and reads tolerantly."""
    assert handler.request_deserializer is not None
    make = _MAKERS[handler.request_streaming, handler.response_streaming]
    wrapped: Handler = make(
        behaviour, tolerant(handler.request_deserializer, not handler.request_streaming), encoded
    )
    return wrapped


def encoded(response: Message | bytes) -> bytes:
    """Encodes a response that is not encoded yet."""
    return response if isinstance(response, bytes) else response.SerializeToString()


def salvaged(message: Unreadable) -> list[tuple[generation_pb2.GenerateBulkRequest, bool]]:
    """Returns the requests of a bulk message that has text that is not UTF-8.

    Each comes with whether it can be read; if not, only its id is there. Raises the error itself if
    not even the fields can be read.
    """
    fields = _fields_of(message, message.data)
    more = [value for number, value in fields if number == _MORE and isinstance(value, bytes)]
    found = []
    for own in (fields, *(_fields_of(message, data) for data in more)):
        ids = [value for number, value in own if number == 1 and isinstance(value, int)]
        sent = [value for number, value in own if number == _REQUEST and isinstance(value, bytes)]
        each = generation_pb2.GenerateBulkRequest(id=ids[-1] if ids else 0)
        try:
            each.request.MergeFromString(b"".join(sent))
            found.append((each, True))
        except DecodeError:
            found.append((each, False))
    return found


def _fields_of(message: Unreadable, data: bytes) -> list[tuple[int, Any]]:
    try:
        # A message without fields keeps all unparsed, so bad text does no harm.
        unknown: Any = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        raise message from None
    return [(field.field_number, field.data) for field in unknown]


def encoded_list(field: int, items: Sequence[bytes]) -> bytes:
    """Encodes a message whose only field is a list of messages that are encoded already."""
    tag = _varint(field << 3 | 2)
    pieces: list[bytes | bytearray] = []
    for item in items:
        pieces += (tag, _varint(len(item)), item)
    return b"".join(pieces)


def _varint(number: int) -> bytearray:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return written
