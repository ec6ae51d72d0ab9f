"""DeepL's API: ``/v2/translate``, ``/document``, ``/languages``, ``/usage`` and ``/glossaries``.

Only the server's operator changes glossaries. An id is the name with the languages, as in the file
name: ``products.en-de``.

Source: the public description of the API, https://developers.deepl.com/docs, and what its clients
send.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from seqserve.arguments import GenerateOptions
from seqserve.language_codes import AUTO, folded
from seqserve.model import Glossary
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.documents import Documents, attachment, suffix_of
from seqserve_gateway.endpoint import Endpoint, Form, warning_header
from seqserve_gateway.failure import Failure, names_of, reason_as, refusal
from seqserve_gateway.fields import Fields, File, fields_of
from seqserve_gateway.reading import Job
from seqserve_gateway.translation import name_of, targets_of, translated

_SCHEME = "deepl-auth-key"
_TSV = "text/tab-separated-values"
_READ_ONLY = "the glossaries are files of the operator of the server; no call changes them"
# Targets that its clients do not accept without a region.
_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
_FORMALITIES = ("default", "prefer_more", "prefer_less", "more", "less")
# Pairs of languages whose forms the server knows.
_FORMAL = (("en", "de"),)
# Fields that should change a translation, but that no model reads.
_WITHOUT_EFFECT = ("context", "custom_instructions", "style_id", "translation_memory_id")
_XML_TAGS = {
    "ignored": "ignore_tags",
    "splitting": "splitting_tags",
    "non_splitting": "non_splitting_tags",
}
# Used without a quota, because some clients divide by the limit.
_NO_LIMIT = 1_000_000_000_000


async def _translate(call: Call) -> Response:
    fields = _fields(call)
    texts = [_in_one_line(fields, text) for text in fields.texts("text")]
    options = await _options(call, fields)
    job = _job_of(fields, texts)
    source, target = fields.text("source_lang", "") or AUTO, fields.code("target_lang")
    results = await translated(call, job, "text", source, target, options)
    billed = [{"billed_characters": len(text)} for text in texts]
    shown = billed if fields.flag("show_billed_characters") else [{} for _ in texts]
    # DeepL's answers have no region.
    sources = [folded(result.source.language).name.upper() for result in results]
    translations = [
        {"detected_source_language": code, "text": result.text, **count}
        for code, result, count in zip(sources, results, shown, strict=True)
    ]
    return JSONResponse({"translations": translations}, headers=warning_header(results))


async def _document(call: Call) -> Response:
    fields = _fields(call)
    file = fields.file("file")
    file = File(fields.text("filename", "") or file.name, file.content)
    suffix = suffix_of(file, "file")
    if fields.text("output_format", "").lower() not in ("", suffix[1:]):
        raise refusal("output_format", f"is not supported: a {suffix} stays one; leave it out")
    options = await _options(call, fields)
    source, target = fields.text("source_lang", "") or AUTO, fields.code("target_lang")
    await call.check_token()
    return JSONResponse(_documents(call).begin(call, file, source, target, options))


async def _document_status(call: Call) -> Response:
    return JSONResponse(_documents(call).status(*await _handle(call)))


async def _document_result(call: Call) -> Response:
    documents, (id_, key) = _documents(call), await _handle(call)
    if call.request.method != "HEAD":
        call.afterwards = partial(documents.remove, id_)
    return attachment(*documents.result(id_, key))


async def _handle(call: Call) -> tuple[str, str]:
    key = _fields(call).text("document_key")
    await call.check_token()
    return call.request.path_params["id"], key


def _documents(call: Call) -> Documents:
    return cast(Documents, call.request.app.state.documents)


async def _languages(call: Call) -> Response:
    fields = _fields(call)
    kind = fields.text("type", "source")
    if kind not in ("source", "target"):
        raise refusal("type", "must be source or target")
    targets = await call.recent(targets_of)
    codes = targets if kind == "source" else sorted({*chain(*targets.values())})
    languages: dict[str, str] = {}
    for code in codes:
        regions = _REGIONS.get(code, {}) if kind == "target" else {}
        languages |= regions or {code.upper(): name_of(code)}
    formal = {target.upper() for source, target in _FORMAL if target in targets.get(source, ())}
    return JSONResponse(
        [
            {"language": code, "name": name}
            | ({"supports_formality": code in formal} if kind == "target" else {})
            for code, name in languages.items()
        ]
    )


async def _usage(call: Call) -> Response:
    _fields(call)
    # The period with a quota; the month if neither or both have one.
    usages = await call.client.usage(timeout_s=call.left_s)
    periods = sorted(usages, key=lambda each: (each.max_characters > 0, each.period == "month"))
    count, limit = (periods[-1].characters, periods[-1].max_characters) if periods else (0, 0)
    return JSONResponse({"character_count": count, "character_limit": limit or _NO_LIMIT})


def _split(fields: Fields) -> str:
    return fields.word("split_sentences", "1", ("0", "1", "nonewlines"))


def _in_one_line(fields: Fields, text: str) -> str:
    # In HTML a line end is a space in any case.
    if _split(fields) == "1" or fields.text("tag_handling", "") == "html":
        return text
    return " ".join(map(str.strip, text.splitlines()))


async def _options(call: Call, fields: Fields) -> GenerateOptions:
    # An option that would have no effect is an error.
    for name in filter(fields.has, _WITHOUT_EFFECT):
        raise refusal(name, "is not supported, because no model here reads it; leave it out")
    if fields.has("glossary_ids"):
        raise refusal("glossary_ids", "is not supported; a request has one glossary_id")
    options: GenerateOptions = {}
    if (formality := fields.word("formality", _FORMALITIES[0], _FORMALITIES)) != _FORMALITIES[0]:
        options["formality"] = formality  # type: ignore[typeddict-item]
    if _split(fields) == "0":
        # Each text is one line; unlike with "none", the server wraps one that is too long.
        options["segmentation"] = "lines"
    if id_ := fields.text("glossary_id", ""):
        source, target = fields.text("source_lang", ""), fields.text("target_lang")
        options["glossary"] = await _glossary_of(call, id_, source, target)
    return options


def _job_of(fields: Fields, texts: Sequence[str]) -> Job:
    handling = fields.text("tag_handling", "")
    if handling not in ("", "html", "xml"):
        raise refusal("tag_handling", f"{handling} is not supported; use html or xml")
    options: dict[str, object] = {
        argument: [name.strip() for each in fields.texts(field) for name in each.split(",")]
        for argument, field in _XML_TAGS.items()
        if handling == "xml" and fields.has(field)
    }
    if handling == "xml" and fields.has("outline_detection"):
        options["has_outline"] = fields.flag("outline_detection")
    return Job(handling or "plain", texts, options=options)


async def _glossary_of(call: Call, id_: str, source: str, target: str) -> str:
    if not source:
        raise refusal("source_lang", "is missing; a glossary needs it")
    # One that is not in the recent list may be new.
    glossary = _found(await call.recent(_glossaries), id_) or await _with_id(call, id_)
    own = glossary.source_language, glossary.target_language
    for code, requested in zip(own, (source, target), strict=True):
        if not folded(code).may_be(folded(requested)):
            raise refusal("glossary_id", f"is for {own[0]} to {own[1]}")
    return glossary.name


async def _list_glossaries(call: Call) -> Response:
    _fields(call)
    glossaries = await _glossaries(call)
    return JSONResponse({"glossaries": [_described(glossary) for glossary in glossaries]})


async def _glossary(call: Call) -> Response:
    _fields(call)
    return JSONResponse(_described(await _with_id(call, call.request.path_params["id"])))


async def _entries(call: Call) -> Response:
    _fields(call)
    listed = await _with_id(call, call.request.path_params["id"])
    languages = listed.source_language, listed.target_language
    glossary = await call.client.glossary(listed.name, *languages, timeout_s=call.left_s)
    lines = [f"{source}\t{target}\n" for source, target in glossary.entries]
    return Response("".join(lines), media_type=_TSV)


async def _pairs(call: Call) -> Response:
    # A pivot does not support glossaries.
    _fields(call)
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
    if (glossary := _found(await _glossaries(call), id_)) is None:
        raise Failure("NOT_FOUND", f"glossary_id: {id_!r:.80} is not a glossary of the server")
    return glossary


def _found(glossaries: Sequence[Glossary], id_: str) -> Glossary | None:
    return next((each for each in glossaries if _id_of(each) == id_), None)


async def _glossaries(call: Call) -> Sequence[Glossary]:
    return await call.client.glossaries(timeout_s=call.left_s)


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


def _fields(call: Call) -> Fields:
    # The key, in its header or among them, is the caller's token.
    fields = fields_of(call)
    if key := _key_of(call.request) or fields.text("auth_key", ""):
        # The end by which its clients know the address of the free service.
        call.token = key.removesuffix(":fx")
    return fields


def _key_of(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == _SCHEME else ""


FORM = Form(
    name="deepl",
    endpoints=[
        Endpoint(path="/v2/translate", answer=_translate, methods=["GET", "POST"]),
        Endpoint(path="/v2/document", answer=_document, goes_on=True),
        Endpoint(path="/v2/document/{id}", answer=_document_status, methods=["GET", "POST"]),
        Endpoint(path="/v2/document/{id}/result", answer=_document_result, methods=["GET", "POST"]),
        Endpoint(path="/v2/languages", answer=_languages, methods=["GET", "POST"]),
        Endpoint(path="/v2/usage", answer=_usage, methods=["GET", "POST"]),
        Endpoint(path="/v2/glossary-language-pairs", answer=_pairs, methods=["GET"]),
        Endpoint(path="/v2/glossaries", answer=_list_glossaries, methods=["GET"]),
        Endpoint(path="/v2/glossaries", answer=_refuse, methods=["POST"]),
        Endpoint(path="/v2/glossaries/{id}", answer=_glossary, methods=["GET"]),
        Endpoint(path="/v2/glossaries/{id}", answer=_refuse, methods=["DELETE"]),
        Endpoint(path="/v2/glossaries/{id}/entries", answer=_entries, methods=["GET"]),
    ],
    error=reason_as("message", "`Authorization: DeepL-Auth-Key TOKEN`", {"QUOTA_USED": 456}),
    names=names_of("source_lang", "target_lang")
    | {"options.glossary": "glossary_id", "options.formality": "formality"},
    openapi=json.loads((RESOURCES / "deepl.json").read_text("utf-8")),
)
