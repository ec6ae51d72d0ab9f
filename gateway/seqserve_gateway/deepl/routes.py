"""DeepL's routes: ``/v2/translate``, ``/v2/languages``, ``/v2/usage``, and those of glossaries.

Source: the public description of the API, https://developers.deepl.com/docs, and what its clients
send.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain

from starlette.responses import JSONResponse, Response

from seqserve.arguments import GenerateOptions
from seqserve.documents import html
from seqserve.errors import CallError
from seqserve.language_codes import AUTO, folded
from seqserve_gateway.call import Call
from seqserve_gateway.deepl.glossaries import ENDPOINTS, glossary_of
from seqserve_gateway.deepl.keyed import keyed_fields_of
from seqserve_gateway.deepl.openapi import OPENAPI
from seqserve_gateway.form import Endpoint, Form
from seqserve_gateway.translation import xml
from seqserve_gateway.translation.errors import error_as
from seqserve_gateway.translation.fields import Fields, refusal
from seqserve_gateway.translation.languages import Languages, targets_of
from seqserve_gateway.translation.names import name_of
from seqserve_gateway.translation.texts import Parse, Translated, plain, translated

# Codes of targets that its clients do not accept without a region.
_REGIONS = {
    "en": {"EN-GB": "English (British)", "EN-US": "English (American)"},
    "pt": {"PT-BR": "Portuguese (Brazilian)", "PT-PT": "Portuguese (European)"},
}
# There is no quota; some clients divide by the limit.
_NO_LIMIT = 1_000_000_000_000


async def _translate(call: Call) -> Response:
    fields = keyed_fields_of(call)
    texts = fields.texts("text")
    options = await _options(call, fields)
    parse = _parse_of(fields)
    languages = Languages(
        source=fields.text("source_lang", "") or AUTO,
        target=fields.text("target_lang"),
        source_field="source_lang",
        target_field="target_lang",
    )
    with _glossary_errors():
        results = await translated(call, texts, parse, languages, options)
    billed = [{"billed_characters": len(text)} for text in texts]
    shown = billed if fields.flag("show_billed_characters") else [{} for _ in texts]
    return JSONResponse(
        {
            "translations": [
                {"detected_source_language": _source_of(result), "text": result.text, **count}
                for result, count in zip(results, shown, strict=True)
            ]
        }
    )


async def _languages(call: Call) -> Response:
    fields = keyed_fields_of(call)
    kind = fields.text("type", "source")
    if kind not in ("source", "target"):
        raise refusal("type", "must be source or target")
    targets = await targets_of(call)
    codes = targets if kind == "source" else sorted({*chain(*targets.values())})
    languages: dict[str, str] = {}
    for code in codes:
        regions = _REGIONS.get(code, {}) if kind == "target" else {}
        languages |= regions or {code.upper(): name_of(code)}
    support = {"supports_formality": False} if kind == "target" else {}
    return JSONResponse(
        [{"language": code, "name": name, **support} for code, name in languages.items()]
    )


async def _usage(call: Call) -> Response:
    """Says that nothing is counted and nothing is limited."""
    keyed_fields_of(call)
    return JSONResponse({"character_count": 0, "character_limit": _NO_LIMIT})


def _source_of(result: Translated) -> str:
    """Returns the code of a source, which has no region in DeepL's answers."""
    return folded(result.source.language).name.upper()


@contextmanager
def _glossary_errors() -> Iterator[None]:
    """Has the server's errors of a glossary name the field of the form."""
    try:
        yield
    except CallError as error:
        if error.field != "options.glossary":
            raise
        reason = error.details.removeprefix(f"{error.field}: ")
        raise refusal("glossary_id", reason) from None


async def _options(call: Call, fields: Fields) -> GenerateOptions:
    """Reads what changes a translation, and refuses what would silently not be done."""
    if fields.text("formality", "default") in ("more", "less"):
        raise refusal(
            "formality", "is not supported; leave it out, or use prefer_more, prefer_less"
        )
    if fields.has("glossary_ids"):
        raise refusal("glossary_ids", "is not supported; a request has one glossary_id")
    options: GenerateOptions = {}
    if fields.text("split_sentences", "1") == "0":
        options["segmentation"] = "none"
    if id_ := fields.text("glossary_id", ""):
        source, target = fields.text("source_lang", ""), fields.text("target_lang")
        options["glossary"] = await glossary_of(call, id_, source, target)
    return options


def _parse_of(fields: Fields) -> Parse:
    handling = fields.text("tag_handling", "")
    if handling == "html":
        return lambda text: html.parse([text])
    if handling == "xml":
        names = fields.texts("ignore_tags") if fields.has("ignore_tags") else []
        ignored = {name.strip() for each in names for name in each.split(",")}
        return partial(xml.parse, ignored=ignored)
    if handling:
        raise refusal("tag_handling", f"{handling} is not supported; there are html, xml")
    return plain


FORM = Form(
    name="deepl",
    endpoints=[
        Endpoint(path="/v2/translate", answer=_translate, methods=["GET", "POST"]),
        Endpoint(path="/v2/languages", answer=_languages, methods=["GET", "POST"]),
        Endpoint(path="/v2/usage", answer=_usage, methods=["GET", "POST"]),
        *ENDPOINTS,
    ],
    error=error_as("message"),
    openapi=OPENAPI,
)
