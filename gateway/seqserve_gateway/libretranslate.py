"""LibreTranslate's API: ``/translate``, ``/translate_file``, ``/detect``, ``/languages``.

``/translate`` is DeepLX's too, whose requests have ``text`` and ``target_lang``.
Sources: the public description of the API, https://docs.libretranslate.com, and of DeepLX,
https://deeplx.owo.network, and what their clients send.
"""

import json
import time
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from seqserve.language_codes import AUTO, folded
from seqserve.results import DetectedLanguage
from seqserve_gateway import RESOURCES
from seqserve_gateway.call import Call
from seqserve_gateway.documents import SUFFIXES, attachment, report_of, translated_file
from seqserve_gateway.endpoint import Endpoint, Form, warning_header
from seqserve_gateway.failure import Failure, names_of, reason_as, refusal
from seqserve_gateway.fields import Fields, fields_of
from seqserve_gateway.reading import Job
from seqserve_gateway.translation import DETECTION_CHARS, name_of, targets_of, translated

_MOST_ALTERNATIVES = 15
_FORMS = {"text": "plain", "html": "html"}


async def _translate(call: Call) -> Response:
    fields = _fields(call)
    if fields.has("target_lang") and not fields.has("q"):
        return await _translate_one(call, fields)
    texts = fields.texts("q")
    source, target = fields.code("source"), fields.code("target")
    if (form := _FORMS.get(fields.text("format", "text"))) is None:
        raise refusal("format", f"{fields.text('format')} is not supported; use text or html")
    alternatives = fields.number("alternatives", _MOST_ALTERNATIVES)
    job = Job(form, texts)
    results = await translated(call, job, "q", source, target, alternatives=alternatives)
    answer: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if alternatives:
        answer["alternatives"] = [list(result.alternatives) for result in results]
    if source == AUTO:
        answer["detectedLanguage"] = [_detected(result.source) for result in results]
    shown = answer if fields.has_list("q") else {name: own[0] for name, own in answer.items()}
    return JSONResponse(shown, headers=warning_header(results))


async def _translate_one(call: Call, fields: Fields) -> Response:
    # As DeepLX has it.
    source, target = fields.text("source_lang", "").lower() or AUTO, fields.text("target_lang")
    form = fields.word("tag_handling", "plain", ("plain", "html", "xml"))
    alternatives = fields.number("alternatives", _MOST_ALTERNATIVES)
    job = Job(form, [fields.text("text")])
    call.names |= names_of("source_lang", "target_lang")
    [result] = await translated(call, job, "text", source, target, alternatives=alternatives)
    answer = {
        "code": 200,
        "id": time.time_ns() // 1000,
        "data": result.text,
        "alternatives": list(result.alternatives),
        "source_lang": folded(result.source.language).name.upper(),
        "target_lang": target.upper(),
        "method": "Free",
    }
    return JSONResponse(answer, headers=warning_header([result]))


async def _suggest(call: Call) -> Response:
    raise Failure("PERMISSION_DENIED", "suggestions are off: this server keeps no texts")


async def _translate_file(call: Call) -> Response:
    fields = _fields(call)
    file = fields.file("file")
    source, target = fields.code("source"), fields.code("target")
    written, facts, _ = await translated_file(call, file, source, target, "file")
    key = call.request.app.state.documents.add(written)
    url = f"{call.request.base_url}download_file/{key}/{quote(written.name)}"
    headers = {"x-translation-report": report_of(facts)}
    return JSONResponse({"translatedFileUrl": url}, headers=headers)


async def _download(call: Call) -> Response:
    return attachment(call.request.app.state.documents.get(call.request.path_params["key"]))


async def _detect(call: Call) -> Response:
    fields = _fields(call)
    # An array is one text, in one language.
    text = "\n".join(fields.texts("q"))[:DETECTION_CHARS]
    detected = await call.client.detect_language(text, timeout_s=call.left_s)
    return JSONResponse([_detected(each) for each in detected])


async def _languages(call: Call) -> Response:
    _fields(call)
    known = (await call.recent(targets_of)).items()
    return JSONResponse([{**_named(source), "targets": targets} for source, targets in known])


async def _settings(call: Call) -> Response:
    # As LibreTranslate describes itself to its page.
    _fields(call)
    source, targets = next(iter((await call.recent(targets_of)).items()), ("", [""]))
    return JSONResponse(
        {
            "apiKeys": True,
            "charLimit": -1,
            "frontendTimeout": 500,
            "keyRequired": False,
            "language": {"source": _named(source), "target": _named(targets[0])},
            "suggestions": False,
            "supportedFilesFormat": list(SUFFIXES),
        }
    )


def _fields(call: Call) -> Fields:
    # The key among them is the caller's token.
    fields = fields_of(call)
    if key := fields.text("api_key", "") or fields.text("token", ""):
        call.token = key
    return fields


def _named(code: str) -> dict[str, str]:
    return {"code": code, "name": name_of(code)}


def _detected(detected: DetectedLanguage) -> dict[str, Any]:
    return {"language": detected.language, "confidence": round(100 * detected.confidence, 1)}


FORM = Form(
    name="libretranslate",
    endpoints=[
        Endpoint(path="/translate", answer=_translate),
        Endpoint(path="/translate_file", answer=_translate_file),
        Endpoint(path="/download_file/{key}/{name}", answer=_download, methods=["GET"]),
        Endpoint(path="/detect", answer=_detect),
        Endpoint(path="/suggest", answer=_suggest),
        Endpoint(path="/languages", answer=_languages, methods=["GET"]),
        Endpoint(path="/frontend/settings", answer=_settings, methods=["GET"]),
    ],
    error=reason_as("error", "api_key"),
    names=names_of("source", "target"),
    openapi=json.loads((RESOURCES / "libretranslate.json").read_text("utf-8")),
)
