"""The description of every form for programs, ``/openapi.json``, and for people, ``/docs``.

That of ``/v1`` is made from the descriptors of its calls and messages.
Sources: OpenAPI 3.1.0, https://spec.openapis.org/oas/v3.1.0; JSON Schema 2020-12.
"""

import json
from collections.abc import Iterable, Sequence
from html import escape
from string import Template
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seqserve import __version__
from seqserve.declarations import DECLARATIONS, Declaration
from seqserve.metadata import REQUEST_ID_PATTERN
from seqserve.v1 import generation_pb2
from seqserve_gateway import PAGE, RESOURCES
from seqserve_gateway.endpoint import Form

Schema = dict[str, Any]
COMMENTS: dict[str, str] = json.loads((RESOURCES / "comments.json").read_text("utf-8"))
"""Comments of the protos by the full name of what they describe; ``make proto`` writes them."""
_OPTIONS = generation_pb2.GenerationOptions.DESCRIPTOR.full_name
# Numbers in answers; in requests the bounds of the options apply.
_NUMBER: Schema = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
# 64 bits are a text where JSON is written, because not every reader of numbers has so many.
_LONG: Schema = {"type": ["integer", "string"], "minimum": 0, "pattern": "^[0-9]+$"}
_KINDS: dict[int, Schema] = {
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "minimum": -1 << 31, "maximum": ~(-1 << 31)},
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
_CLIENTS = {
    "v1": ("Any HTTP client", "JSON with every option and answer; unknown fields are refused."),
    "LibreTranslate": (
        "LibreTranslate and DeepLX",
        "The address of the service is <code>{address}</code>, the address of DeepLX"
        " <code>{address}/translate</code>.",
    ),
    "DeepL": ("DeepL", "The <code>server_url</code> of its SDK is <code>{address}</code>."),
    "OpenAI": (
        "OpenAI",
        "The <code>base_url</code> of its SDK is <code>{address}/v1</code>. It lists models, too.",
    ),
}
"""Heading and advice for the clients of each form, by its tag."""


def reference_to(kind: Any) -> Schema:
    """Refers to the schema of a message or an enum."""
    return {"$ref": f"#/components/schemas/{kind.name}"}


def schemas_of(messages: Iterable[Any]) -> dict[str, Schema]:
    """Returns the schemas of messages, and of all that they contain, by their names."""
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
        "properties": {field.name: _field(field) for field in kind.fields}
        | _ADDED.get(kind.name, {}),
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


def document_of(forms: Sequence[Form], max_timeout_s: float) -> dict[str, Any]:
    """Joins the descriptions of forms to one document of OpenAPI."""
    document: dict[str, Any] = json.loads((RESOURCES / "openapi.json").read_text("utf-8"))
    document["info"]["version"] = __version__
    headers = document["components"]["parameters"]
    headers["Timeout"]["schema"]["maximum"] = max_timeout_s
    headers["RequestId"]["schema"]["pattern"] = f"^{REQUEST_ID_PATTERN}$"
    paths = document["paths"] = {}
    for form in forms:
        document["components"]["schemas"] |= form.openapi.get("components", {}).get("schemas", {})
        for path, verbs in form.openapi.get("paths", {}).items():
            paths[path] = {verb: _completed(each) for verb, each in verbs.items()}
    return document


def _completed(operation: dict[str, Any]) -> dict[str, Any]:
    # A form that writes errors in another shape has described it.
    responses = {"default": {"$ref": "#/components/responses/Problem"}} | operation["responses"]
    headers = [{"$ref": f"#/components/parameters/{name}"} for name in ("Timeout", "RequestId")]
    parameters = [*operation.get("parameters", []), *headers]
    return operation | {"parameters": parameters, "responses": responses}


def routes_of(forms: Sequence[Form], max_timeout_s: float) -> list[Route]:
    """Makes the routes; the document is written once."""
    document = document_of(forms, max_timeout_s)
    text, page = json.dumps(document, indent=1), _page(document)
    style = (PAGE / "page.css").read_text("utf-8") + (RESOURCES / "docs.css").read_text("utf-8")
    files = {
        "style.css": Response(style, media_type="text/css"),
        "try.js": Response((RESOURCES / "docs.js").read_bytes(), media_type="text/javascript"),
        "icon.svg": Response((PAGE / "icon.svg").read_bytes(), media_type="image/svg+xml"),
    }

    async def openapi(request: Request) -> Response:
        root = request.scope["root_path"]
        under = json.dumps(document | {"servers": [{"url": root}]}, indent=1) if root else text
        return Response(under, media_type="application/json")

    async def docs(request: Request) -> Response:
        address = str(request.base_url).rstrip("/")
        return HTMLResponse(page.replace("{address}", escape(address)))

    routes = [Route("/openapi.json", openapi), Route("/docs", docs)]
    return routes + [Route(f"/docs/{name}", file, methods=["GET"]) for name, file in files.items()]


def _page(document: dict[str, Any]) -> str:
    calls: dict[str, list[str]] = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            [tag] = operation["tags"]
            calls.setdefault(tag, []).append(_call(f"{verb.upper()} {path}", operation))
    sections = [
        f'<section class="card"><h2>{heading}</h2><p>{advice}</p>{"".join(calls[tag])}</section>'
        for tag, (heading, advice) in _CLIENTS.items()
        if tag in calls
    ]
    schemas = document["components"]["schemas"].items()
    return Template((RESOURCES / "docs.html").read_text("utf-8")).substitute(
        version=escape(document["info"]["version"]),
        example=escape(json.dumps({"source": "The coffee tastes good."}), quote=False),
        sections="\n".join(sections),
        schemas="\n".join(_schema(name, schema) for name, schema in schemas),
    )


def _call(name: str, operation: dict[str, Any]) -> str:
    own = [each for each in operation["parameters"] if "name" in each]
    parts = [f"<p>{escape(operation.get('description', ''))}</p>"]
    parts.append(_table({each["name"]: each["schema"] | each for each in own}))
    takes = operation.get("requestBody", {}).get("content", {})
    answers = next(iter(operation["responses"].values())).get("content", {})
    for verb, content in (("Takes", takes), ("Answers", answers)):
        if content:
            # Whatever its type is, a body has the same fields; the last one is JSON.
            [*_, facts], types = content.values(), ", ".join(content)
            parts.append(f"<p>{verb} {_type(facts['schema'])} as <code>{types}</code>.</p>")
    label = f"<code>{escape(name)}</code> <span>{escape(operation['summary'])}</span>"
    return f"<details><summary>{label}</summary><div>{''.join(parts)}</div></details>"


def _schema(name: str, schema: dict[str, Any]) -> str:
    # A link to what is within leads to it, and opens it.
    inside = f"<p>{escape(schema.get('description', ''))}</p>{_table(schema.get('properties', {}))}"
    return (
        f"<details><summary><code>{escape(name)}</code></summary>"
        f'<div id="{escape(name)}">{inside}</div></details>'
    )


def _table(fields: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(name)}</code><td>{_type(facts)}"
        f"<td>{escape(facts.get('description', ''))}"
        for name, facts in fields.items()
    ]
    return f"<table>{''.join(rows)}</table>" if rows else ""


def _type(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref", ""):
        name = escape(reference.rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if event := schema.get("properties", {}).get("data"):
        return (
            f"events of {_type(event['contentSchema'])}" if "contentSchema" in event else "object"
        )
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
