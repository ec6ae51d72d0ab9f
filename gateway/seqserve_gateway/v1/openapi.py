"""OpenAPI of ``/v1``.

Source: OpenAPI 3.1.0, sections 4.8.8 to 4.8.17.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqserve_gateway.v1.operations import Operation
from seqserve_gateway.v1.schemas import COMMENTS, Schema, reference_to, schemas_of

_EXAMPLE = {"source": "The coffee tastes good.", "options": {"beam_size": 4}}
_SERVICE = {True: "ModelService", False: "GenerationService"}


def openapi_of(operations: Sequence[Operation]) -> dict[str, Any]:
    """Returns the members ``paths`` and ``components`` for calls."""
    messages = [each.response.DESCRIPTOR for each in operations]
    messages += [each.request.DESCRIPTOR for each in operations if not each.is_get]
    return {
        "paths": {
            each.path: {"get" if each.is_get else "post": _operation(each)} for each in operations
        },
        "components": {"schemas": schemas_of(messages)},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    name = f"seqserve.v1.{_SERVICE[operation.is_get]}.{operation.method.value}"
    facts: dict[str, Any] = {
        "operationId": operation.method.value,
        "summary": COMMENTS[name].partition(". ")[0].rstrip("."),
        "description": COMMENTS[name],
        "tags": ["v1"],
        "responses": {"200": _answer(operation)},
    }
    if operation.is_get:
        facts["parameters"] = [
            _parameter(field, operation) for field in operation.request.DESCRIPTOR.fields
        ]
    else:
        schema = reference_to(operation.request.DESCRIPTOR)
        content: Schema = {"schema": schema}
        if operation.request.DESCRIPTOR.name == "GenerateRequest":
            content["example"] = _EXAMPLE
        facts["requestBody"] = {"required": True, "content": {"application/json": content}}
    return facts


def _answer(operation: Operation) -> dict[str, Any]:
    schema = reference_to(operation.response.DESCRIPTOR)
    media_type = "text/event-stream" if operation.is_stream else "application/json"
    description = COMMENTS[operation.response.DESCRIPTOR.full_name]
    if operation.is_stream:
        description += (
            " Each event has one as `data`. If the call fails after the first of them, an"
            " event named `error` comes last, with a problem as `data`."
        )
        data = {"type": "string", "contentMediaType": "application/json", "contentSchema": schema}
        # OpenAPI 3.1 has no schema for the parts of a stream; this is that of one event, as in 3.2.
        schema = {
            "type": "object",
            "properties": {"event": {"type": "string"}, "data": data},
            "required": ["data"],
        }
    return {"description": description, "content": {media_type: {"schema": schema}}}


def _parameter(field: Any, operation: Operation) -> dict[str, Any]:
    is_in_path = f"{{{field.name}}}" in operation.path
    kind = "string" if field.cpp_type == field.CPPTYPE_STRING else "integer"
    schema = {"type": kind} if kind == "string" else {"type": kind, "minimum": 0}
    return {
        "name": field.name,
        "in": "path" if is_in_path else "query",
        "required": is_in_path,
        "description": COMMENTS[field.full_name],
        "schema": schema,
    }
