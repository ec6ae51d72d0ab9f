"""The description of every form for programs, ``/openapi.json``, and for people, ``/docs``.

Source: OpenAPI 3.1.0, https://spec.openapis.org/oas/v3.1.0.
"""

import json
from collections.abc import Sequence
from html import escape
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seqserve import __version__
from seqserve.metadata import REQUEST_ID, REQUEST_ID_PATTERN
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import TIMEOUT_HEADER
from seqserve_gateway.endpoint import Form


def document_of(forms: Sequence[Form], max_timeout_s: float) -> dict[str, Any]:
    """Joins the descriptions of forms to one document of OpenAPI."""
    document: dict[str, Any] = json.loads((RESOURCES / "openapi.json").read_text("utf-8"))
    document["info"]["version"] = __version__
    headers = [
        {
            "name": TIMEOUT_HEADER,
            "in": "header",
            "description": "Seconds that the request may take.",
            "schema": {"type": "number", "exclusiveMinimum": 0, "maximum": max_timeout_s},
        },
        {
            "name": REQUEST_ID,
            "in": "header",
            "description": "Id of the request, in the answer and in the server's log.",
            "schema": {"type": "string", "pattern": f"^{REQUEST_ID_PATTERN}$"},
        },
    ]
    paths = document["paths"] = {}
    for form in forms:
        document["components"]["schemas"] |= form.openapi.get("components", {}).get("schemas", {})
        for path, verbs in form.openapi.get("paths", {}).items():
            paths[path] = {verb: _completed(each, headers) for verb, each in verbs.items()}
    return document


def _completed(operation: dict[str, Any], headers: list[dict[str, Any]]) -> dict[str, Any]:
    # A form that writes errors in another shape has described it.
    responses = {"default": {"$ref": "#/components/responses/Problem"}} | operation["responses"]
    parameters = [*operation.get("parameters", []), *headers]
    return operation | {"parameters": parameters, "responses": responses}


def routes_of(forms: Sequence[Form], max_timeout_s: float) -> list[Route]:
    """Makes the routes; the document is written once."""
    document = document_of(forms, max_timeout_s)
    text, page = json.dumps(document, indent=1), _page(document)
    style = (RESOURCES / "docs.css").read_text("utf-8")

    async def openapi(request: Request) -> Response:
        root = request.scope["root_path"]
        under = json.dumps(document | {"servers": [{"url": root}]}, indent=1) if root else text
        return Response(under, media_type="application/json")

    async def docs(request: Request) -> Response:
        return HTMLResponse(page)

    async def css(request: Request) -> Response:
        return Response(style, media_type="text/css")

    return [Route("/openapi.json", openapi), Route("/docs", docs), Route("/docs/style.css", css)]


def _page(document: dict[str, Any]) -> str:
    operations = [
        _section(verb, path, operation)
        for path, verbs in document["paths"].items()
        for verb, operation in verbs.items()
    ]
    schemas = [_table(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width">',
            '<title>seqserve over HTTP</title><link rel="stylesheet" href="docs/style.css">',
            f"<h1>seqserve {escape(document['info']['version'])} over HTTP</h1>",
            '<p>The same for programs: <a href="openapi.json">openapi.json</a>.</p>',
            *operations,
            "<h2>Messages</h2>",
            *schemas,
        ]
    )


def _section(verb: str, path: str, operation: dict[str, Any]) -> str:
    parts = [f"<h2><code>{verb.upper()} {escape(path)}</code></h2>"]
    parts.append(f"<p>{escape(operation.get('description') or operation.get('summary', ''))}</p>")
    bodies = [*operation.get("requestBody", {}).get("content", {}).items()]
    bodies += operation["responses"].get("200", {}).get("content", {}).items()
    for label, (media_type, content) in zip(("Takes", "Answers"), bodies[-2:], strict=False):
        label = label if len(bodies) > 1 else "Answers"
        parts.append(f"<p>{label} <code>{media_type}</code>: {_type(content['schema'])}</p>")
    return "\n".join(parts)


def _table(name: str, schema: dict[str, Any]) -> str:
    rows = [
        f"<tr><td><code>{escape(member)}</code><td>{_type(facts)}"
        f"<td>{escape(facts.get('description', ''))}"
        for member, facts in schema.get("properties", {}).items()
    ]
    head = f'<h3 id="{escape(name)}">{escape(name)}</h3>'
    head += f"<p>{escape(schema.get('description', ''))}</p>"
    return head + (f"<table>{''.join(rows)}</table>" if rows else "")


def _type(schema: dict[str, Any]) -> str:
    if reference := schema.get("$ref", ""):
        name = escape(reference.rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    if event := schema.get("properties", {}).get("data"):
        return f"events of {_type(event['contentSchema'])}"
    if "anyOf" in schema:
        return _type(schema["anyOf"][0])
    kind = schema.get("type", "any")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)
