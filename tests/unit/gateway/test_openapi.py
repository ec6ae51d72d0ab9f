import re
from collections.abc import Iterator
from typing import Any

from openapi_spec_validator import validate
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.app import FORMS
from seqserve_gateway.openapi import document_of

DOCUMENT = document_of(FORMS, 300.0)
SCHEMAS = DOCUMENT["components"]["schemas"]


def references(facts: Any) -> Iterator[str]:
    if isinstance(facts, dict):
        if "$ref" in facts:
            yield facts["$ref"]
        for member in facts.values():
            yield from references(member)
    elif isinstance(facts, list):
        for member in facts:
            yield from references(member)


def test_document_is_openapi_and_each_reference_leads_somewhere() -> None:
    validate(DOCUMENT)
    for reference in references(DOCUMENT):
        _, _, kind, name = reference.split("/")
        assert name in DOCUMENT["components"][kind]


def test_what_is_described_is_served_and_all_of_our_own_form_is_described() -> None:
    described = {
        (verb.upper(), path) for path, verbs in DOCUMENT["paths"].items() for verb in verbs
    }
    served = {
        form.name: {
            (verb, endpoint.path) for endpoint in form.endpoints for verb in endpoint.methods
        }
        for form in FORMS
    }
    assert served["v1"] <= described <= set.union(*served.values())


def test_options_have_their_bounds_and_their_help() -> None:
    options = SCHEMAS["GenerationOptions"]["properties"]
    assert options["beam_size"]["minimum"] == 1
    assert options["patience"] == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 16,
        "description": options["patience"]["description"],
    }
    assert options["segmentation"]["enum"] == ["none", "lines", "sentences"]
    assert options["terms"]["maxItems"] == 16
    assert options["terms"]["items"] == {"$ref": "#/components/schemas/Term"}


def test_every_field_is_described() -> None:
    for name, schema in SCHEMAS.items():
        for field, facts in schema.get("properties", {}).items():
            assert facts.get("description") or name == "Problem", f"{name}.{field}"


async def test_page_leads_to_every_call_and_needs_no_other_server(server: FakeServer) -> None:
    async with opened(gateway_of(server), *FORMS) as client:
        page = (await client.get("/docs", headers={"host": "127.0.0.1:1"})).text
        served = (await client.get("/openapi.json")).json()
        files = set(re.findall(r'(?:href|src)="([^#"]+)"', page))
        types = {name: (await client.get(name)).headers["content-type"] for name in files}
        missing = await client.get("/docs/other.js")
    assert served == DOCUMENT
    assert {name: kind.split(";")[0] for name, kind in types.items()} == {
        "docs/style.css": "text/css",
        "docs/try.js": "text/javascript",
        "docs/icon.svg": "image/svg+xml",
        "openapi.json": "application/json",
    }
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    assert page.count("<script") == 1 and "style=" not in page and "innerHTML" not in page
    assert "curl http://127.0.0.1:1/v1/generate" in page and "{address}" not in page
    for path, verbs in DOCUMENT["paths"].items():
        assert all(f"<code>{verb.upper()} {path}</code>" in page for verb in verbs)
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(re.findall(r'id="([^"]+)"', page))
