"""``/v1``: the calls of GenerationService and ModelService that read, in strict JSON.

Their schemas are made from the descriptors of the messages.
Sources: OpenAPI 3.1.0, sections 4.8.8 to 4.8.17; JSON Schema 2020-12; the JSON mapping of proto3,
https://protobuf.dev/programming-guides/json/.
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from google.protobuf.descriptor import FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from starlette.responses import JSONResponse, Response

from seqserve._transport.connection import Method
from seqserve.declarations import DECLARATIONS, Declaration
from seqserve.v1 import generation_pb2, model_pb2
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import JSON, Call
from seqserve_gateway.endpoint import Endpoint, Form, Streamed
from seqserve_gateway.failure import Failure, refusal
from seqserve_gateway.fields import Fields
from seqserve_gateway.messages import facts_of, message_of, text_of

Schema = dict[str, Any]
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
_COMMENTS: dict[str, str] = json.loads((RESOURCES / "comments.json").read_text("utf-8"))
"""Comments of the protos by the full name of what they describe; ``make proto`` writes them."""
_EXAMPLE = {"source": "The coffee tastes good.", "options": {"beam_size": 4}}
_OPTIONS = generation_pb2.GenerationOptions.DESCRIPTOR.full_name
# Numbers in answers; in requests the bounds of the options apply.
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
# 64 bits are a text where JSON is written, because not every reader of numbers has so many.
_LONG: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+$"}
_KINDS: dict[int, Schema] = {
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_INT32: {
        "type": "integer",
        "minimum": -(1 << 31),
        "maximum": (1 << 31) - 1,
    },
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1},
    FieldDescriptor.CPPTYPE_UINT64: _LONG,
    FieldDescriptor.CPPTYPE_FLOAT: _NUMBER,
    FieldDescriptor.CPPTYPE_DOUBLE: _NUMBER,
}
_LIMITS = {"gt": "exclusiveMinimum", "gte": "minimum", "lt": "exclusiveMaximum", "lte": "maximum"}
_FOR_OPENAI = {"description": "For clients of OpenAI's API."}
_ADDED: dict[str, Schema] = {
    "GetModelResponse": dict.fromkeys(("id", "object", "created", "owned_by"), _FOR_OPENAI),
    "ListModelsResponse": dict.fromkeys(("object", "data"), _FOR_OPENAI),
}
"""Members of answers in addition to the message."""


def _endpoint(path: str, descriptor: MethodDescriptor) -> Endpoint:
    method, message = Method(descriptor.name), GetMessageClass(descriptor.input_type)
    read = _from_query if is_get(descriptor) else _from_body

    async def answer(call: Call) -> Response:
        request = read(call, message())
        if descriptor.server_streaming:
            return Streamed(_events(call, method, request), partial(_failed, call.request_id))
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


def _failed(request_id: str, failure: Failure) -> str:
    return f"event: error\ndata: {failure.text(request_id)}\n\n"


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


def openapi_of(calls: Mapping[str, MethodDescriptor]) -> dict[str, Any]:
    """Returns the members ``paths`` and ``components`` for calls by their paths."""
    messages = [call.output_type for call in calls.values()]
    messages += [call.input_type for call in calls.values() if not is_get(call)]
    return {
        "paths": {
            path: {"get" if is_get(call) else "post": _operation(path, call)}
            for path, call in calls.items()
        },
        "components": {"schemas": _schemas_of(messages)},
    }


def is_get(call: MethodDescriptor) -> bool:
    """Returns whether the request is in the path and the query, without a body."""
    return call.containing_service.name == "ModelService"


def _operation(path: str, call: MethodDescriptor) -> dict[str, Any]:
    comment = _COMMENTS[call.full_name]
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
        content: Schema = {"schema": _reference_to(call.input_type)}
        if call.input_type.name == "GenerateRequest":
            content["example"] = _EXAMPLE
        facts["requestBody"] = {"required": True, "content": {"application/json": content}}
    return facts


def _answer(call: MethodDescriptor) -> dict[str, Any]:
    schema = _reference_to(call.output_type)
    media_type = "text/event-stream" if call.server_streaming else "application/json"
    description = _COMMENTS[call.output_type.full_name]
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
        "description": _COMMENTS[field.full_name],
        "schema": schema,
    }


def _reference_to(kind: Any) -> Schema:
    return {"$ref": f"#/components/schemas/{kind.name}"}


def _schemas_of(messages: Iterable[Any]) -> dict[str, Schema]:
    schemas: dict[str, Schema] = {}
    waiting = list(messages)
    while waiting:
        kind = waiting.pop()
        if kind.name in schemas:
            continue
        if hasattr(kind, "values"):
            schemas[kind.name] = _enum(kind)
        else:
            schemas[kind.name] = _message(kind)
            inner = (field.message_type or field.enum_type for field in kind.fields)
            waiting.extend(each for each in inner if each is not None)
    return dict(sorted(schemas.items()))


def _message(kind: Any) -> Schema:
    return {
        "type": "object",
        "description": _COMMENTS[kind.full_name].partition(". Each field declares")[0],
        "properties": {field.name: _field(field) for field in kind.fields}
        | _ADDED.get(kind.name, {}),
        "additionalProperties": False,
    }


def _enum(kind: Any) -> Schema:
    meanings = (
        f"`{each.name}`: {_COMMENTS[f'{kind.full_name}.{each.name}']}" for each in kind.values
    )
    return {
        "type": "string",
        "description": " ".join([_COMMENTS[kind.full_name], *meanings]),
        "enum": [value.name for value in kind.values],
    }


def _field(field: Any) -> Schema:
    comment, declaration = _COMMENTS.get(field.full_name, ""), None
    if field.containing_type.full_name == _OPTIONS:
        declaration = DECLARATIONS[field.name]
        comment = f"{declaration.text} {comment}".strip()
    schema = _kind(field, declaration)
    # Only a repeated field has a list as its default.
    if isinstance(field.default_value, list):
        schema = {"type": "array", "items": schema}
        if declaration and declaration.max_items:
            schema["maxItems"] = declaration.max_items
    return schema | ({"description": comment} if comment else {})


def _kind(field: Any, declaration: Declaration | None) -> Schema:
    if inner := field.message_type or field.enum_type:
        return _reference_to(inner)
    if declaration is None:
        return dict(_KINDS[field.cpp_type])
    if declaration.choices:
        return {"type": "string", "enum": list(declaration.choices)}
    if declaration.kind is float:
        schema: Schema = {"type": "number"}
    else:
        schema = dict(_KINDS[field.cpp_type])
    return schema | {_LIMITS[name]: limit for name, limit in declaration.limits.items()}


FORM = Form(
    name="v1",
    endpoints=[_endpoint(path, call) for path, call in CALLS.items()],
    openapi=openapi_of(CALLS),
)
