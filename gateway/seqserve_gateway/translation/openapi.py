"""OpenAPI of the forms of translation services: what each of their requests takes and answers.

Source: OpenAPI 3.1.0, sections 4.8.8 to 4.8.17.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
FILE: Schema = {"type": "string", "contentMediaType": "application/octet-stream"}
_JSON, _FORM, _MULTIPART = (
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
)


def one_of(*choices: str) -> Schema:
    """Describes a text that is one of some."""
    return {"type": "string", "enum": [*choices]}


def either(*schemas: Schema) -> Schema:
    """Describes a value of several kinds."""
    return {"anyOf": [*schemas]}


def array_of(schema: Schema) -> Schema:
    """Describes an array."""
    return {"type": "array", "items": schema}


def record(fields: Mapping[str, Schema], *optional: str) -> Schema:
    """Describes an object; all fields but the optional ones are there."""
    required = [name for name in fields if name not in optional]
    return {"type": "object", "properties": {**fields}, "required": required}


def described(schema: Schema, description: str) -> Schema:
    """Adds what a field means."""
    return schema | {"description": description}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathDescription:
    """What one path of a form takes and answers."""

    path: str
    name: str
    """Of the operation, unique in its form."""
    summary: str
    answer: Schema
    fields: Schema | None = None
    """What is sent; None where nothing is."""
    media_type: str = _JSON
    """Of the answer."""
    is_get: bool = False
    """Whether the fields are in the query, and there is no body."""


def openapi_of(form: str, paths: Sequence[PathDescription], error: str) -> dict[str, Any]:
    """Returns the members ``paths`` and ``components`` for a form.

    Args:
        form: Its name, as its users write it.
        paths: What is described of it.
        error: The member of an error that has the reason.
    """
    schemas = {f"{form}.Error": record({error: described(TEXT, "What was wrong.")})}
    for each in paths:
        schemas[f"{form}.{each.name}Answer"] = each.answer
        if each.fields and not each.is_get:
            schemas[f"{form}.{each.name}"] = each.fields
    return {
        "paths": {
            each.path: {"get" if each.is_get else "post": _operation(form, each)} for each in paths
        },
        "components": {"schemas": schemas},
    }


def _operation(form: str, path: PathDescription) -> dict[str, Any]:
    fields = path.fields or {"properties": {}, "required": []}
    answer = _content(f"{form}.{path.name}Answer", path.media_type)
    operation: dict[str, Any] = {
        "operationId": f"{form}.{path.name}",
        "summary": path.summary,
        "tags": [form],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": TEXT}
            for name in _names_in(path.path)
        ],
        "responses": {
            "200": {"description": path.summary, "content": answer},
            "default": {
                "description": "An error; 429 and 503 have the header Retry-After.",
                "content": _content(f"{form}.Error", _JSON),
            },
        },
    }
    if path.is_get:
        operation["parameters"] += [
            {"name": name, "in": "query", "required": name in fields["required"], "schema": schema}
            for name, schema in fields["properties"].items()
        ]
    elif path.fields:
        has_file = FILE["contentMediaType"] in (
            schema.get("contentMediaType") for schema in fields["properties"].values()
        )
        kinds = (_MULTIPART,) if has_file else (_FORM, _JSON)
        content = _content(f"{form}.{path.name}", *kinds)
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _content(schema: str, *media_types: str) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema}"}
    return {media_type: {"schema": reference} for media_type in media_types}


def _names_in(path: str) -> list[str]:
    return [part[1:-1] for part in path.split("/") if part.startswith("{")]
