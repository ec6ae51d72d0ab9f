"""``/v1``: the calls of GenerationService and ModelService that read, in strict JSON.

Fields are written with the names of the protos (``num_hypotheses``); ``numHypotheses`` is accepted
too. An unknown or repeated field is an error that names it. NaN and the infinities are texts.
Source: the JSON mapping of proto3, https://protobuf.dev/programming-guides/json/.
"""

import math
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.responses import JSONResponse, Response

from seqserve._transport.connection import Method
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway.call import JSON, Call
from seqserve_gateway.endpoint import Endpoint, Form, Streamed
from seqserve_gateway.failure import Failure, compact, refusal, writable
from seqserve_gateway.fields import Fields, invalid, known, object_of
from seqserve_gateway.openapi import COMMENTS, Schema, reference_to, schemas_of

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
    "/v1/usage": Method.GET_USAGE,
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
_EXAMPLE = {"source": "The coffee tastes good.", "options": {"beam_size": 4}}

M = TypeVar("M", bound=Message)
_WRONG = re.compile(r"Failed to parse (\S+) field: (.+)", re.DOTALL)
_PLACE = re.compile(r" at \w+\.([\w.\[\]]+)$")
_SCALARS: dict[int, tuple[Any, str]] = {
    FieldDescriptor.CPPTYPE_STRING: (str, "a text"),
    FieldDescriptor.CPPTYPE_BOOL: (bool, "true or false"),
}
"""JSON types of each kind of field, and their name in errors."""
_NUMBER: tuple[Any, str] = (str | float | int, "a number")
"""All other kinds; a text that is a number is one."""
_NO_INTEGER = "invalid literal for int() with base 10: "
"""Python's own words, which protobuf passes on."""


def _endpoint(path: str, descriptor: MethodDescriptor) -> Endpoint:
    method, message = Method(descriptor.name), GetMessageClass(descriptor.input_type)
    read = _from_query if is_get(descriptor) else _from_body

    async def answer(call: Call) -> Response:
        request = read(call, message())
        if descriptor.server_streaming:
            error = "event: error\ndata: {}\n\n".format
            events = _events(call, method, request)
            return Streamed(events, lambda failure: error(failure.text(call.request_id)))
        response = await call.message(method, request)
        if members := _as_openai(response):
            return JSONResponse(facts_of(response) | members)
        return Response(text_of(response), media_type=JSON)

    return Endpoint(path=path, answer=answer, methods=["GET" if is_get(descriptor) else "POST"])


def _from_body(call: Call, message: Message) -> Message:
    call.check_json()
    return message_of(call.json, message)


def _from_query(call: Call, message: Message) -> Message:
    values = {**call.request.path_params, **call.request.query_params}
    for name, value in values.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise refusal(name, "unknown parameter")
        is_text = field.cpp_type == field.CPPTYPE_STRING
        setattr(message, name, value if is_text else Fields(values).number(name, (1 << 32) - 1))
    return message


async def _events(call: Call, method: Method, request: Message) -> AsyncGenerator[str, None]:
    async with aclosing(call.messages(method, request)) as messages:
        async for message in messages:
            yield f"data: {text_of(message)}\n\n"


def _as_openai(response: Message) -> dict[str, Any]:
    """Returns the additional members by which clients of OpenAI's API know the models."""
    if isinstance(response, model_pb2.GetModelResponse):
        return _described(response.model.name)
    if not isinstance(response, model_pb2.ListModelsResponse):
        return {}
    ready = (each.name for each in response.models if each.state == model_pb2.MODEL_STATE_READY)
    return {"object": "list", "data": [_described(name) for name in dict.fromkeys(ready)]}


def _described(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "seqserve"}


def message_of(load: Callable[..., Any], message: M) -> M:
    """Fills a message from JSON, which ``load`` reads as for :func:`.fields.object_of`."""
    facts = object_of(load)
    try:
        _check_objects(facts, message.DESCRIPTOR)
        return json_format.ParseDict(facts, message)
    except json_format.ParseError as error:
        raise _misfit(str(error)) from None
    except RecursionError:
        raise invalid("the body is nested too deeply") from None


def facts_of(message: Message) -> dict[str, Any]:
    """Converts a message to what JSON can hold; fields that have their default are left out."""
    facts: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return facts


def text_of(message: Message) -> str:
    """Writes a message as JSON in one line."""
    return compact(facts_of(message))


def _check_objects(facts: Mapping[str, Any], kind: Any, path: str = "") -> None:
    # protobuf's errors about unknown fields lack their path, and it takes an empty list for an
    # object. Most other values are left to it.
    fields = kind.fields_by_name
    for name, value in facts.items():
        # protobuf fails to look this name up.
        _check_scalar(name, f"{path}{name}")
        field = fields.get(name) or kind.fields_by_camelcase_name.get(name)
        if field is None:
            inner = fields["options"].message_type.fields_by_name if "options" in fields else {}
            near = f"; did you mean options.{name}?" if name in inner else known(name, list(fields))
            reason = f"unknown field{near}"
            raise invalid(reason, f"{path}{name or repr(name)}")
        if value is None:
            continue
        if field.message_type is None:
            _check_values(value, field, f"{path}{name}")
            continue
        # A message on its own has presence, a list of them has none.
        if not isinstance(value, dict if field.has_presence else list):
            kinds = "an object" if field.has_presence else "a list of objects"
            raise invalid(f"is not {kinds}", f"{path}{name}")
        if isinstance(value, dict):
            _check_objects(value, field.message_type, f"{path}{name}.")
            continue
        for number, member in enumerate(value):
            place = f"{path}{name}[{number}]"
            if not isinstance(member, dict):
                raise invalid("is not an object", place)
            _check_objects(member, field.message_type, f"{place}.")


def _check_values(value: object, field: Any, path: str) -> None:
    # Errors name the types of JSON, not of Python.
    if not isinstance(field.default_value, list):
        values = {path: value}
    elif isinstance(value, list):
        values = {f"{path}[{number}]": member for number, member in enumerate(value)}
    else:
        raise invalid("is not a list", path)
    types, kind = _SCALARS.get(field.cpp_type, _NUMBER)
    for place, each in values.items():
        # Python takes True for a number.
        if not isinstance(each, types) or (isinstance(each, bool) and types is not bool):
            raise invalid(f"is not {kind}", place)
        _check_scalar(each, place)


def _check_scalar(value: object, path: str) -> None:
    # protobuf fails at these without a ParseError.
    if isinstance(value, str) and writable(value) != value:
        raise invalid("has half of a surrogate pair", path)
    if isinstance(value, float) and math.isinf(value):
        raise invalid("is too large a number", path)


def _misfit(reason: str) -> Failure:
    names = []
    while wrong := _WRONG.match(reason):
        names.append(wrong[1])
        reason = wrong[2].removesuffix(".")
    field = ".".join(names)
    if place := _PLACE.search(reason):
        # Some errors have all names in front, some all at the end.
        field, reason = max(field, place[1], key=len), reason[: place.start()]
    if reason.startswith(_NO_INTEGER):
        reason = f"{reason.removeprefix(_NO_INTEGER)} is not an integer"
    return invalid(reason, field)


def openapi_of(calls: Mapping[str, MethodDescriptor]) -> dict[str, Any]:
    """Returns the members ``paths`` and ``components`` for calls by their paths."""
    messages = [call.output_type for call in calls.values()]
    messages += [call.input_type for call in calls.values() if not is_get(call)]
    return {
        "paths": {
            path: {"get" if is_get(call) else "post": _operation(path, call)}
            for path, call in calls.items()
        },
        "components": {"schemas": schemas_of(messages)},
    }


def is_get(call: MethodDescriptor) -> bool:
    """Returns whether the request is in the path and the query, without a body."""
    return call.containing_service.name == "ModelService"


def _operation(path: str, call: MethodDescriptor) -> dict[str, Any]:
    comment = COMMENTS[call.full_name]
    facts: dict[str, Any] = {
        "operationId": call.name,
        "summary": comment.partition(". ")[0].rstrip("."),
        "description": comment,
        "tags": ["v1"],
        "responses": {"200": _answer(call)},
    }
    if is_get(call):
        facts["parameters"] = [_parameter(field, path) for field in call.input_type.fields]
    else:
        content: Schema = {"schema": reference_to(call.input_type)}
        if call.input_type.name == "GenerateRequest":
            content["example"] = _EXAMPLE
        facts["requestBody"] = {"required": True, "content": {"application/json": content}}
    return facts


def _answer(call: MethodDescriptor) -> dict[str, Any]:
    schema = reference_to(call.output_type)
    media_type = "text/event-stream" if call.server_streaming else "application/json"
    description = COMMENTS[call.output_type.full_name]
    if call.server_streaming:
        description += (
            " Each event has one as `data`. If the call fails after the first of them, an"
            " event named `error` comes last, with a problem as `data`."
        )
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
        # OpenAPI 3.1 has no schema for the parts of a stream; this one is for an event, as in 3.2.
        schema = {
            "type": "object",
            "properties": {"event": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _parameter(field: Any, path: str) -> dict[str, Any]:
    is_in_path = f"{{{field.name}}}" in path
    kind = "string" if field.cpp_type == field.CPPTYPE_STRING else "integer"
    schema = {"type": kind} if kind == "string" else {"type": kind, "minimum": 0}
    return {
        "name": field.name,
        "in": "path" if is_in_path else "query",
        "required": is_in_path,
        "description": COMMENTS[field.full_name],
        "schema": schema,
    }


FORM = Form(
    name="v1",
    endpoints=[_endpoint(path, call) for path, call in CALLS.items()],
    openapi=openapi_of(CALLS),
)
