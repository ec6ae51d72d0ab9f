"""``/v1``: the calls of GenerationService and ModelService that read, in strict JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from google.protobuf.message import Message
from starlette.responses import Response

from seqserve.errors import CallError
from seqserve_gateway.call import JSON, Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.form import Endpoint, Form
from seqserve_gateway.streamed import Streamed
from seqserve_gateway.v1.messages import message_of, text_of
from seqserve_gateway.v1.openapi import openapi_of
from seqserve_gateway.v1.operations import OPERATIONS, Operation


def _endpoint(operation: Operation) -> Endpoint:
    async def answer(call: Call) -> Response:
        request = (_from_query if operation.is_get else _from_body)(call, operation.request())
        if operation.is_stream:
            return Streamed(_events(call, operation, request), "text/event-stream")
        return Response(text_of(await call.message(operation.method, request)), media_type=JSON)

    verb = "GET" if operation.is_get else "POST"
    return Endpoint(path=operation.path, answer=answer, methods=[verb])


def _from_body(call: Call, message: Message) -> Message:
    """Reads a message from the body."""
    call.check_json()
    return message_of(call.body, message)


def _from_query(call: Call, message: Message) -> Message:
    """Reads a message from the path and the query."""
    values = {**call.request.path_params, **call.request.query_params}
    for name, value in values.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            reason = f"{name}: there is no such parameter"
            raise Failure("INVALID_ARGUMENT", reason, field=name)
        is_text = field.cpp_type == field.CPPTYPE_STRING
        if not (is_text or _is_number(value)):
            reason = f"{name}: must be a whole number"
            raise Failure("INVALID_ARGUMENT", reason, field=name)
        setattr(message, name, value if is_text else int(value))
    return message


def _is_number(text: str) -> bool:
    """Tells whether a text is a number of 32 bits; Python does not read thousands of digits."""
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 1 << 32


async def _events(call: Call, operation: Operation, request: Message) -> AsyncGenerator[str, None]:
    """Yields an event for each message, and one named ``error`` if the call fails after the first.

    Source: HTML Living Standard, section 9.2, "Server-sent events".
    """
    has_begun = False
    try:
        async with aclosing(call.messages(operation.method, request)) as messages:
            async for message in messages:
                has_begun = True
                yield f"data: {text_of(message)}\n\n"
    except CallError as error:
        if has_begun:
            yield f"event: error\ndata: {Failure.of(error).text(call.request_id)}\n\n"
        raise


FORM = Form(
    name="v1",
    endpoints=[_endpoint(operation) for operation in OPERATIONS],
    openapi=openapi_of(OPERATIONS),
)
