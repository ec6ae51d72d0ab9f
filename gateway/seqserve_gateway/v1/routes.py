"""``/v1``: the calls of GenerationService and ModelService that read, in strict JSON."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from google.protobuf.message import Message
from starlette.responses import Response

from seqserve._transport.method import Method
from seqserve.errors import CallError
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.form import Endpoint, Form
from seqserve_gateway.streamed import Streamed
from seqserve_gateway.v1.messages import message_of, text_of

_JSON = "application/json"


def _unary(method: Method, request: type[Message]) -> Callable[[Call], Awaitable[Response]]:
    async def answer(call: Call) -> Response:
        return _response(await call.message(method, _request(call, request())))

    return answer


def _request(call: Call, message: Message) -> Message:
    content_type = call.request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Pages of other sites can send any other type without being asked for leave (CORS).
    if content_type != _JSON:
        reason = f"the Content-Type must be {_JSON}"
        raise Failure("INVALID_ARGUMENT", reason, 415, field="content-type")
    return message_of(call.body, message)


def _response(message: Message) -> Response:
    return Response(text_of(message), media_type=_JSON)


async def _stream(call: Call) -> Response:
    request = _request(call, generation_pb2.GenerateRequest())
    return Streamed(_events(call, request), "text/event-stream")


async def _events(call: Call, request: Message) -> AsyncGenerator[str, None]:
    """Yields an event for each message, and one named ``error`` if the call fails after the first.

    Source: HTML Living Standard, section 9.2, "Server-sent events".
    """
    has_begun = False
    try:
        async with aclosing(call.messages(Method.GENERATE_STREAM, request)) as messages:
            async for message in messages:
                has_begun = True
                yield f"data: {text_of(message)}\n\n"
    except CallError as error:
        if not has_begun:
            raise
        yield f"event: error\ndata: {Failure.of(error).text(call.request_id)}\n\n"


async def _models(call: Call) -> Response:
    return _response(await call.message(Method.LIST_MODELS, model_pb2.ListModelsRequest()))


async def _model(call: Call) -> Response:
    request = model_pb2.GetModelRequest(model=call.request.path_params["model"])
    version = call.request.query_params.get("version", "0")
    if not (version.isdecimal() and int(version) < 1 << 32):
        raise Failure("INVALID_ARGUMENT", "version: must be a whole number", field="version")
    request.version = int(version)
    return _response(await call.message(Method.GET_MODEL, request))


FORM = Form(
    name="v1",
    endpoints=[
        Endpoint(
            path="/v1/generate",
            answer=_unary(Method.GENERATE, generation_pb2.GenerateRequest),
        ),
        Endpoint(path="/v1/generate:stream", answer=_stream),
        Endpoint(
            path="/v1/generate:batch",
            answer=_unary(Method.GENERATE_BATCH, generation_pb2.GenerateBatchRequest),
        ),
        Endpoint(path="/v1/score", answer=_unary(Method.SCORE, generation_pb2.ScoreRequest)),
        Endpoint(
            path="/v1/tokenize", answer=_unary(Method.TOKENIZE, generation_pb2.TokenizeRequest)
        ),
        Endpoint(
            path="/v1/detokenize",
            answer=_unary(Method.DETOKENIZE, generation_pb2.DetokenizeRequest),
        ),
        Endpoint(path="/v1/models", answer=_models, methods=["GET"]),
        Endpoint(path="/v1/models/{model}", answer=_model, methods=["GET"]),
    ],
)
