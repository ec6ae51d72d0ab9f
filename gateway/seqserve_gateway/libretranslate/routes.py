"""LibreTranslate's routes: ``/translate``, ``/translate_file``, ``/detect``, ``/languages``.

Source: the public description of the API, https://docs.libretranslate.com, and what its clients
send.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from seqserve.documents import html
from seqserve.documents.formats import format_of, parser_of
from seqserve.documents.passage import Parser
from seqserve.errors import OptionError
from seqserve_gateway.call import Call
from seqserve_gateway.failure import Failure
from seqserve_gateway.form import Endpoint, Form
from seqserve_gateway.libretranslate.downloads import Downloads
from seqserve_gateway.translation.fields import Fields, File, fields_of, refusal
from seqserve_gateway.translation.names import name_of
from seqserve_gateway.translation.pairs import AUTO, Pair, pairs_of
from seqserve_gateway.translation.texts import Parse, plain, translated

_MOST_ALTERNATIVES = 15
_SUFFIXES = [".txt", ".md", ".html", ".srt", ".vtt"]
_DOWNLOADS = Downloads()


async def _translate(call: Call) -> Response:
    fields = _fields(call)
    texts = fields.texts("q")
    pair, is_detected = await _pair(call, fields)
    parse = _parse_of(fields.text("format", "text"))
    alternatives = fields.number("alternatives", _MOST_ALTERNATIVES)
    results = await translated(call, texts, parse, pair, alternatives=alternatives)
    answer: dict[str, list[Any]] = {"translatedText": [result.text for result in results]}
    if alternatives:
        answer["alternatives"] = [list(result.alternatives) for result in results]
    if is_detected:
        answer["detectedLanguage"] = [_detected(pair.source)] * len(texts)
    if fields.has_list("q"):
        return JSONResponse(answer)
    return JSONResponse({name: values[0] for name, values in answer.items()})


async def _translate_file(call: Call) -> Response:
    fields = _fields(call)
    file = fields.file("file")
    parser = _parser_of(file)
    pair, _ = await _pair(call, fields)
    try:
        text = file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise refusal("file", "is not UTF-8") from None
    [result] = await translated(call, [text], lambda text: parser(io.StringIO(text, "")), pair)
    path = Path(file.name)
    name = f"{path.stem}_{pair.target}{path.suffix}"
    key = _DOWNLOADS.add(File(name, result.text.encode()))
    url = f"{call.request.base_url}download_file/{key}/{quote(name)}"
    return JSONResponse({"translatedFileUrl": url})


async def _download(call: Call) -> Response:
    file = _DOWNLOADS.get(call.request.path_params["key"])
    # As a page of the gateway's own origin a translated page could act for its readers.
    disposition = f"attachment; filename*=UTF-8''{quote(file.name)}"
    headers = {"content-disposition": disposition}
    return Response(file.content, media_type="application/octet-stream", headers=headers)


async def _detect(call: Call) -> Response:
    fields = _fields(call)
    fields.texts("q")
    return JSONResponse([_detected((await pairs_of(call)).detected())])


async def _languages(call: Call) -> Response:
    _fields(call)
    pairs = await pairs_of(call)
    return JSONResponse(
        [
            {"code": code, "name": name_of(code), "targets": pairs.targets_of(code)}
            for code in pairs.sources
        ]
    )


async def _settings(call: Call) -> Response:
    """Describes the service as LibreTranslate describes itself to its page."""
    _fields(call)
    pairs = await pairs_of(call)
    source = next(iter(pairs.sources), "")
    target = next(iter(pairs.targets_of(source)), "")
    return JSONResponse(
        {
            "apiKeys": True,
            "charLimit": -1,
            "frontendTimeout": 500,
            "keyRequired": False,
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
            "suggestions": False,
            "supportedFilesFormat": _SUFFIXES,
        }
    )


def _fields(call: Call) -> Fields:
    """Reads the fields; the key among them is the caller's token."""
    fields = fields_of(call)
    if key := fields.text("api_key", ""):
        call.token = key
    return fields


async def _pair(call: Call, fields: Fields) -> tuple[Pair, bool]:
    """Returns the pair of the request, and whether its source is for the server to detect."""
    source, target = fields.text("source"), fields.text("target")
    pairs = await pairs_of(call)
    return pairs.find(source, target, ("source", "target")), source == AUTO


def _parse_of(name: str) -> Parse:
    parsers: dict[str, Parse] = {"text": plain, "html": lambda text: html.parse([text])}
    if name not in parsers:
        raise refusal("format", f"{name} is not supported; there are text, html")
    return parsers[name]


def _parser_of(file: File) -> Parser:
    try:
        return parser_of(format_of(Path(file.name)), field=None, joins_lines=False)
    except OptionError:
        reason = f"the format of {file.name} is not supported; there are {', '.join(_SUFFIXES)}"
        raise refusal("file", reason) from None


def _detected(code: str) -> dict[str, Any]:
    return {"language": code, "confidence": 100.0}


def _error(failure: Failure, request_id: str) -> Response:
    # Its clients know 403 for every key that is not good enough.
    status = 403 if failure.status == 401 else failure.status
    return JSONResponse({"error": failure.details}, status)


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
    error=_error,
)
