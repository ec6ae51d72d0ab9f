"""``/v1``: the calls of GenerationService and ModelService that read, in strict JSON."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.responses import Response

from seqserve._transport.connection import Method
from seqserve.errors import CallError
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.call import JSON, Call
from seqserve_gateway.endpoint import Endpoint, Form, Streamed
from seqserve_gateway.failure import Failure
from seqserve_gateway.messages import message_of, text_of
from seqserve_gateway.schemas import is_get, openapi_of

_PATHS = {
    "/v1/generate": Method.GENERATE,
    "/v1/generate:stream": Method.GENERATE_STREAM,
    "/v1/generate:batch": Method.GENERATE_BATCH,
    "/v1/score": Method.SCORE,
    "/v1/attention": Method.ATTENTION,
    "/v1/tokenize": Method.TOKENIZE,
    "/v1/detokenize": Method.DETOKENIZE,
    "/v1/models": Method.LIST_MODELS,
    "/v1/models/{model}": Method.GET_MODEL,
    "/v1/glossaries": Method.LIST_GLOSSARIES,
    "/v1/glossaries/{glossary}": Method.GET_GLOSSARY,
}
_SERVICES = (
    generation_pb2.DESCRIPTOR.services_by_name["GenerationService"],
    model_pb2.DESCRIPTOR.services_by_name["ModelService"],
)
_DESCRIPTORS = {call.name: call for service in _SERVICES for call in service.methods}
CALLS = {path: _DESCRIPTORS[method.value] for path, method in _PATHS.items()}
"""Descriptors of the calls of ``seqserve.v1`` that ``/v1`` has, by their paths."""


def _endpoint(path: str, descriptor: MethodDescriptor) -> Endpoint:
    method, message = Method(descriptor.name), GetMessageClass(descriptor.input_type)
    read = _from_query if is_get(descriptor) else _from_body

    async def answer(call: Call) -> Response:
        request = read(call, message())
        if descriptor.server_streaming:
            return Streamed(_events(call, method, request), "text/event-stream")
        return Response(text_of(await call.message(method, request)), media_type=JSON)

    return Endpoint(path=path, answer=answer, methods=["GET" if is_get(descriptor) else "POST"])


def _from_body(call: Call, message: Message) -> Message:
    call.check_json()
    return message_of(call.json, message)


def _from_query(call: Call, message: Message) -> Message:
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
    # Python does not read thousands of digits.
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) < 1 << 32


async def _events(call: Call, method: Method, request: Message) -> AsyncGenerator[str, None]:
    """Yields an event for each message, and one named ``error`` if the call fails after the first.

    Source: HTML Living Standard, section 9.2, "Server-sent events".
    """
    has_begun = False
    try:
        async with aclosing(call.messages(method, request)) as messages:
            async for message in messages:
                has_begun = True
                yield f"data: {text_of(message)}\n\n"
    except CallError as error:
        if has_begun:
            yield f"event: error\ndata: {Failure.of(error).text(call.request_id)}\n\n"
        raise


FORM = Form(
    name="v1",
    endpoints=[_endpoint(path, call) for path, call in CALLS.items()],
    openapi=openapi_of(CALLS),
)
