"""The description of every form for programs, ``/openapi.json``, and for people, ``/docs``.

Source: OpenAPI 3.1.0, https://spec.openapis.org/oas/v3.1.0.
"""

import json
from collections.abc import Sequence
from html import escape
from string import Template
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from seqserve import __version__
from seqserve.metadata import REQUEST_ID_PATTERN
from seqserve_gateway import PAGE, RESOURCES
from seqserve_gateway.endpoint import Form

_CLIENTS = {
    "v1": ("Any HTTP client", "Strict JSON over every call that reads: all options and answers."),
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
