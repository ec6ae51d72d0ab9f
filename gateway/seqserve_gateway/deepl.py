"""DeepL's API: ``/v2/translate``, ``/document``, ``/languages`` and ``/usage``.

Source: the public description of the API, https://developers.deepl.com/docs, and what its clients
send.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import chain
from typing import TypeAlias

from starlette.responses import JSONResponse, Response

from seqserve.arguments import GenerateOptions
from seqserve.language_codes import AUTO, folded
from seqserve_gateway import RESOURCES, glossaries
from seqserve_gateway.call import Call
from seqserve_gateway.documents import attachment, suffix_of
from seqserve_gateway.endpoint import Endpoint, Form, warning_header
from seqserve_gateway.failure import names_of, reason_as, refusal
from seqserve_gateway.fields import Fields, File, fields_of
from seqserve_gateway.reading import Job
from seqserve_gateway.translation import name_of, targets_of, translated

_Answer: TypeAlias = Callable[[Call, Fields], Awaitable[Response]]
_SCHEME = "deepl-auth-key"
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


async def _translate(call: Call, fields: Fields) -> Response:
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


async def _document(call: Call, fields: Fields) -> Response:
    file = fields.file("file")
    file = File(fields.text("filename", "") or file.name, file.content)
    suffix = suffix_of(file, "file")
    if fields.text("output_format", "").lower() not in ("", suffix[1:]):
        raise refusal("output_format", f"is not supported: a {suffix} stays one; leave it out")
    options = await _options(call, fields)
    source, target = fields.text("source_lang", "") or AUTO, fields.code("target_lang")
    await call.check_token()
    return JSONResponse(call.request.app.state.documents.begin(call, file, source, target, options))


async def _document_status(call: Call, fields: Fields) -> Response:
    return JSONResponse(call.request.app.state.documents.status(*await _handle(call, fields)))


async def _document_result(call: Call, fields: Fields) -> Response:
    documents, (id_, key) = call.request.app.state.documents, await _handle(call, fields)
    if call.request.method != "HEAD":
        call.afterwards = partial(documents.remove, id_)
    return attachment(*documents.result(id_, key))


async def _handle(call: Call, fields: Fields) -> tuple[str, str]:
    key = fields.text("document_key")
    await call.check_token()
    return call.request.path_params["id"], key


async def _languages(call: Call, fields: Fields) -> Response:
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


async def _usage(call: Call, fields: Fields) -> Response:
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
        if not (source := fields.text("source_lang", "")):
            raise refusal("source_lang", "is missing; a glossary needs it")
        pair = source, fields.text("target_lang")
        options["glossary"] = await glossaries.glossary_of(call, id_, pair)
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


async def _pairs(call: Call, fields: Fields) -> Response:
    # A pivot does not support glossaries.
    pairs = await call.client.language_pairs(timeout_s=call.left_s)
    codes = {
        (folded(pair.source_language).name, folded(pair.target_language).name)
        for pair in pairs
        if not pair.pivot_language
    }
    supported = [{"source_lang": source, "target_lang": target} for source, target in sorted(codes)]
    return JSONResponse({"supported_languages": supported})


def _keyed(answer: _Answer) -> Callable[[Call], Awaitable[Response]]:
    # The key, in its header or among the fields, is the caller's token.
    async def keyed(call: Call) -> Response:
        fields = fields_of(call)
        scheme, _, key = call.request.headers.get("authorization", "").partition(" ")
        key = key.strip() if scheme.lower() == _SCHEME else ""
        if key := key or fields.text("auth_key", ""):
            # The end by which its clients know the address of the free service.
            call.token = key.removesuffix(":fx")
        return await answer(call, fields)

    return keyed


_ANSWERS: Sequence[tuple[str, str, _Answer]] = [
    ("/v2/translate", "GET POST", _translate),
    ("/v2/document", "POST", _document),
    ("/v2/document/{id}", "GET POST", _document_status),
    ("/v2/document/{id}/result", "GET POST", _document_result),
    ("/v2/languages", "GET POST", _languages),
    ("/v2/usage", "GET POST", _usage),
    ("/v2/glossary-language-pairs", "GET", _pairs),
    ("/v2/glossaries", "GET POST", glossaries.answer_v2),
    ("/v2/glossaries/{id}", "GET DELETE", glossaries.answer_v2),
    ("/v2/glossaries/{id}/entries", "GET", glossaries.answer_tsv),
    ("/v3/glossaries", "GET POST", glossaries.answer_v3),
    ("/v3/glossaries/{id}", "GET PATCH DELETE", glossaries.answer_v3),
    ("/v3/glossaries/{id}/entries", "GET", glossaries.answer_entries),
    ("/v3/glossaries/{id}/dictionaries", "PUT DELETE", glossaries.answer_dictionary),
]
FORM = Form(
    name="deepl",
    endpoints=[
        Endpoint(
            path=path, answer=_keyed(answer), methods=methods.split(), goes_on=answer is _document
        )
        for path, methods, answer in _ANSWERS
    ],
    error=reason_as("message", "`Authorization: DeepL-Auth-Key TOKEN`", {"QUOTA_USED": 456}),
    names=names_of("source_lang", "target_lang")
    | {"options.glossary": "glossary_id", "options.formality": "formality"},
    openapi=json.loads((RESOURCES / "deepl.json").read_text("utf-8")),
)
