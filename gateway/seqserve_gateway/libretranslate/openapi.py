"""What LibreTranslate's routes take and answer, for ``/openapi.json``."""

from __future__ import annotations

from seqserve_gateway.translation.openapi import (
    FILE,
    FLAG,
    NUMBER,
    TEXT,
    PathDescription,
    array_of,
    described,
    either,
    one_of,
    openapi_of,
    record,
)

_KEY = {"api_key": described(TEXT, "A token of the server.")}
_LANGUAGES = {
    "source": described(TEXT, "Code of the language of the source, or auto."),
    "target": described(TEXT, "Code of the language to translate to."),
}
_DETECTED = record(
    {
        "language": described(TEXT, "Code of the language."),
        "confidence": described({"type": "number"}, "How sure that is, in per cent."),
    }
)
_TEXTS = either(TEXT, array_of(TEXT))

OPENAPI = openapi_of(
    "LibreTranslate",
    [
        PathDescription(
            path="/translate",
            name="Translate",
            summary="Translates a text, or each text of an array",
            fields=record(
                {
                    "q": described(_TEXTS, "The text or the texts."),
                    **_LANGUAGES,
                    "format": described(one_of("text", "html"), "Tags of HTML follow their words."),
                    "alternatives": described(
                        NUMBER | {"maximum": 15}, "How many other translations to return."
                    ),
                    **_KEY,
                },
                *("format", "alternatives", "api_key"),
            ),
            answer=record(
                {
                    "translatedText": described(_TEXTS, "The translation of each text."),
                    "alternatives": described(array_of(_TEXTS), "Other translations of each text."),
                    "detectedLanguage": described(
                        either(_DETECTED, array_of(_DETECTED)),
                        "Of each text, where source is auto.",
                    ),
                },
                *("alternatives", "detectedLanguage"),
            ),
        ),
        PathDescription(
            path="/translate_file",
            name="TranslateFile",
            summary="Translates a document, and tells where to fetch it",
            fields=record(
                {"file": described(FILE, "The document."), **_LANGUAGES, **_KEY}, "api_key"
            ),
            answer=record({"translatedFileUrl": described(TEXT, "Address for ten minutes.")}),
        ),
        PathDescription(
            path="/detect",
            name="Detect",
            summary="Tells in which languages a text may be, the most probable first",
            fields=record({"q": described(_TEXTS, "The text."), **_KEY}, "api_key"),
            answer=array_of(_DETECTED),
        ),
        PathDescription(
            path="/languages",
            name="Languages",
            summary="Lists the languages, and what each is translated to",
            answer=array_of(
                record(
                    {
                        "code": described(TEXT, "Code of the language."),
                        "name": described(TEXT, "Its English name."),
                        "targets": described(array_of(TEXT), "Codes that it is translated to."),
                    }
                )
            ),
            is_get=True,
        ),
        PathDescription(
            path="/frontend/settings",
            name="Settings",
            summary="Describes the service for pages that are made for it",
            answer=record(
                {
                    "apiKeys": described(FLAG, "Whether a request may have a key."),
                    "charLimit": described({"type": "integer"}, "-1: there is none."),
                    "frontendTimeout": described(
                        NUMBER, "Milliseconds before a page sends a text."
                    ),
                    "keyRequired": described(FLAG, "Whether a request needs a key."),
                    "language": described(
                        {"type": "object"}, "A source and a target to begin with."
                    ),
                    "suggestions": described(FLAG, "Whether translations may be suggested."),
                    "supportedFilesFormat": described(array_of(TEXT), "Suffixes of documents."),
                }
            ),
            is_get=True,
        ),
    ],
    error="error",
)
