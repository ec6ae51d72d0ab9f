"""DeepL's routes of glossaries: those of the server, which only its operator changes.

The id of a glossary is its name with its languages, as that of its file: ``products.en-de``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from seqserve.language_codes import folded
from seqserve.model import Glossary
from seqserve_gateway.call import Call
from seqserve_gateway.deepl.keyed import keyed_fields_of
from seqserve_gateway.failure import Failure
from seqserve_gateway.form import Endpoint
from seqserve_gateway.translation.fields import refusal

_TSV = "text/tab-separated-values"
_READ_ONLY = "the glossaries are files of the operator of the server; no call changes them"


async def glossary_of(call: Call, id_: str, source: str, target: str) -> str:
    """Finds the glossary of an id for the languages of a request, and returns its name.

    Raises:
        CallError: The server does not list its glossaries.
        Failure: There is none, or it is for other languages.
    """
    if not source:
        raise refusal("source_lang", "is missing; a glossary needs it")
    glossary = await _with_id(call, id_)
    own = glossary.source_language, glossary.target_language
    for code, requested in zip(own, (source, target), strict=True):
        if not folded(code).may_be(folded(requested)):
            raise refusal("glossary_id", f"is for {own[0]} to {own[1]}")
    return glossary.name


async def _list(call: Call) -> Response:
    keyed_fields_of(call)
    glossaries = await call.client.glossaries(timeout_s=call.left_s)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in glossaries]})


async def _describe(call: Call) -> Response:
    keyed_fields_of(call)
    return JSONResponse(_described(await _with_id(call, call.request.path_params["id"])))


async def _entries(call: Call) -> Response:
    keyed_fields_of(call)
    listed = await _with_id(call, call.request.path_params["id"])
    languages = listed.source_language, listed.target_language
    glossary = await call.client.glossary(listed.name, *languages, timeout_s=call.left_s)
    lines = [f"{source}\t{target}\n" for source, target in glossary.entries]
    return Response("".join(lines), media_type=_TSV)


async def _pairs(call: Call) -> Response:
    """Lists the pairs that one model translates; over two there is no glossary."""
    keyed_fields_of(call)
    pairs = await call.client.language_pairs(timeout_s=call.left_s)
    codes = {
        (folded(pair.source_language).name, folded(pair.target_language).name)
        for pair in pairs
        if not pair.pivot_language
    }
    supported = [{"source_lang": source, "target_lang": target} for source, target in sorted(codes)]
    return JSONResponse({"supported_languages": supported})


async def _refuse(call: Call) -> Response:
    raise Failure("INVALID_ARGUMENT", _READ_ONLY)


async def _with_id(call: Call, id_: str) -> Glossary:
    """Finds the glossary of an id."""
    for glossary in await call.client.glossaries(timeout_s=call.left_s):
        if _id_of(glossary) == id_:
            return glossary
    raise Failure("NOT_FOUND", f"glossary_id: {id_!r:.80} is not a glossary of the server")


def _id_of(glossary: Glossary) -> str:
    return f"{glossary.name}.{glossary.source_language}-{glossary.target_language}"


def _described(glossary: Glossary) -> dict[str, Any]:
    written = datetime.fromtimestamp(glossary.modified_s, UTC).isoformat(timespec="milliseconds")
    return {
        "glossary_id": _id_of(glossary),
        "name": glossary.name,
        "ready": True,
        "source_lang": folded(glossary.source_language).name,
        "target_lang": folded(glossary.target_language).name,
        "creation_time": written.replace("+00:00", "Z"),
        "entry_count": glossary.entry_count,
    }


ENDPOINTS = [
    Endpoint(path="/v2/glossary-language-pairs", answer=_pairs, methods=["GET"]),
    Endpoint(path="/v2/glossaries", answer=_list, methods=["GET"]),
    Endpoint(path="/v2/glossaries", answer=_refuse, methods=["POST"]),
    Endpoint(path="/v2/glossaries/{id}", answer=_describe, methods=["GET"]),
    Endpoint(path="/v2/glossaries/{id}", answer=_refuse, methods=["DELETE"]),
    Endpoint(path="/v2/glossaries/{id}/entries", answer=_entries, methods=["GET"]),
]
"""For the form of :mod:`seqserve_gateway.deepl.routes`."""
