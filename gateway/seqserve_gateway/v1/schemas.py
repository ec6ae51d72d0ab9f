"""JSON schemas of the messages of ``seqserve.v1``, from their descriptors and comments.

Source: JSON Schema 2020-12; the JSON mapping of proto3,
https://protobuf.dev/programming-guides/json/.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from seqserve.declarations import DECLARATIONS, Declaration
from seqserve.v1 import generation_pb2

Schema = dict[str, Any]

COMMENTS: dict[str, str] = json.loads(
    (Path(__file__).parent / "comments.json").read_text(encoding="utf-8")
)
"""Comments of the protos by the full name of what they describe; ``make proto`` writes them."""

_OPTIONS = generation_pb2.GenerationOptions.DESCRIPTOR.full_name
# Of an answer; a request is refused by the bounds of its options.
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


def reference_to(kind: Any) -> Schema:
    """Returns the reference to the schema of a message or an enum."""
    return {"$ref": f"#/components/schemas/{kind.name}"}


def schemas_of(messages: Iterable[Any]) -> dict[str, Schema]:
    """Returns the schemas of messages and of all that is within them, by name.

    Args:
        messages: Their descriptors.
    """
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
        "description": COMMENTS[kind.full_name].partition(". Each field declares")[0],
        "properties": {field.name: _field(field) for field in kind.fields},
        "additionalProperties": False,
    }


def _enum(kind: Any) -> Schema:
    meanings = (
        f"`{each.name}`: {COMMENTS[f'{kind.full_name}.{each.name}']}" for each in kind.values
    )
    return {
        "type": "string",
        "description": " ".join([COMMENTS[kind.full_name], *meanings]),
        "enum": [value.name for value in kind.values],
    }


def _field(field: Any) -> Schema:
    comment, declaration = COMMENTS.get(field.full_name, ""), None
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
        return reference_to(inner)
    if declaration is None:
        return dict(_KINDS[field.cpp_type])
    if declaration.choices:
        return {"type": "string", "enum": list(declaration.choices)}
    if declaration.kind is float:
        schema: Schema = {"type": "number"}
    else:
        schema = dict(_KINDS[field.cpp_type])
    return schema | {_LIMITS[name]: limit for name, limit in declaration.limits.items()}
