"""LibreTranslate's routes: ``/translate``, ``/translate_file``, ``/detect``, ``/languages``.

Source: the public description of the API, https://docs.libretranslate.com, and what its clients
send.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from seqserve.documents import html
from seqserve.language_codes import AUTO
from seqserve.results import DetectedLanguage
from seqserve_gateway.call import Call
from seqserve_gateway.form import Endpoint, Form
from seqserve_gateway.libretranslate.downloads import Downloads
from seqserve_gateway.libretranslate.openapi import OPENAPI
from seqserve_gateway.translation.errors import error_as
from seqserve_gateway.translation.fields import Fields, fields_of, refusal
from seqserve_gateway.translation.files import SUFFIXES, translated_file
from seqserve_gateway.translation.languages import Languages, detect, targets_of
from seqserve_gateway.translation.names import name_of
from seqserve_gateway.translation.texts import Parse, plain, translated

_MOST_ALTERNATIVES = 15
_DOWNLOADS = Downloads()


async def _translate(call: Call) -> Response:
    fields = _fields(call)
    texts = fields.texts("q")
    languages = _languages_of(fields)
    parse = _parse_of(fields.text("format", "text"))
    alternatives = fields.number("alternatives", _MOST_ALTERNATIVES)
    results = await translated(call, texts, parse, languages, alternatives=alternatives)
    answer: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if alternatives:
        answer["alternatives"] = [list(result.alternatives) for result in results]
    if languages.source == AUTO:
        answer["detectedLanguage"] = [_detected(result.source) for result in results]
    if fields.has_list("q"):
        return JSONResponse(answer)
    return JSONResponse({name: values[0] for name, values in answer.items()})


async def _translate_file(call: Call) -> Response:
    fields = _fields(call)
    file = fields.file("file")
    written = await translated_file(call, file, _languages_of(fields), "file")
    key = _DOWNLOADS.add(written)
    url = f"{call.request.base_url}download_file/{key}/{quote(written.name)}"
    return JSONResponse({"translatedFileUrl": url})


async def _download(call: Call) -> Response:
    file = _DOWNLOADS.get(call.request.path_params["key"])
    # As a page of the gateway's own origin a translated page could act for its readers.
    disposition = f"attachment; filename*=UTF-8''{quote(file.name)}"
    headers = {"content-disposition": disposition}
    return Response(file.content, media_type="application/octet-stream", headers=headers)


async def _detect(call: Call) -> Response:
    fields = _fields(call)
    # An array is one text, in one language.
    detected = await detect(call, "\n".join(fields.texts("q")))
    return JSONResponse([_detected(each) for each in detected])


async def _languages(call: Call) -> Response:
    _fields(call)
    return JSONResponse(
        [
            {"code": source, "name": name_of(source), "targets": targets}
            for source, targets in (await targets_of(call)).items()
        ]
    )


async def _settings(call: Call) -> Response:
    """Describes the service as LibreTranslate describes itself to its page."""
    _fields(call)
    source, targets = next(iter((await targets_of(call)).items()), ("", [""]))
    return JSONResponse(
        {
            "apiKeys": True,
            "charLimit": -1,
            "frontendTimeout": 500,
            "keyRequired": False,
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": targets[0], "name": name_of(targets[0])},
            },
            "suggestions": False,
            "supportedFilesFormat": list(SUFFIXES),
        }
    )


def _fields(call: Call) -> Fields:
    """Reads the fields; the key among them is the caller's token."""
    fields = fields_of(call)
    if key := fields.text("api_key", ""):
        call.token = key
    return fields


def _languages_of(fields: Fields) -> Languages:
    return Languages(fields.text("source"), fields.text("target"), "source", "target")


def _parse_of(name: str) -> Parse:
    parsers: dict[str, Parse] = {"text": plain, "html": lambda text: html.parse([text])}
    if name not in parsers:
        raise refusal("format", f"{name} is not supported; there are text, html")
    return parsers[name]


def _detected(detected: DetectedLanguage) -> dict[str, Any]:
    return {"language": detected.language, "confidence": round(100 * detected.confidence, 1)}


FORM = Form(
    name="libretranslate",
    endpoints=[
        Endpoint(path="/translate", answer=_translate),
        Endpoint(path="/translate_file", answer=_translate_file),
        Endpoint(path="/download_file/{key}/{name}", answer=_download, methods=["GET"]),
        Endpoint(path="/detect", answer=_detect),
        Endpoint(path="/languages", answer=_languages, methods=["GET"]),
        Endpoint(path="/frontend/settings", answer=_settings, methods=["GET"]),
    ],
    error=error_as("error"),
    openapi=OPENAPI,
)
