"""What LibreTranslate's routes take and answer, for ``/openapi.json``."""

from __future__ import annotations

from seqserve_gateway.translation.openapi import (
    FILE,
    FLAG,
    NUMBER,
    TEXT,
    Described,
    either,
    listed,
    one_of,
    openapi_of,
    record,
    told,
)

_KEY = {"api_key": told(TEXT, "A token of the server.")}
_LANGUAGES = {
    "source": told(TEXT, "Code of the language of the source, or auto."),
    "target": told(TEXT, "Code of the language to translate to."),
}
_DETECTED = record(
    {
        "language": told(TEXT, "Code of the language."),
        "confidence": told({"type": "number"}, "How sure that is, in per cent."),
    }
)
_TEXTS = either(TEXT, listed(TEXT))

OPENAPI = openapi_of(
    "LibreTranslate",
    [
        Described(
            path="/translate",
            name="Translate",
            summary="Translates a text, or each text of an array",
            fields=record(
                {
                    "q": told(_TEXTS, "The text or the texts."),
                    **_LANGUAGES,
                    "format": told(one_of("text", "html"), "Tags of HTML follow their words."),
                    "alternatives": told(
                        NUMBER | {"maximum": 15}, "How many other translations to return."
                    ),
                    **_KEY,
                },
                *("format", "alternatives", "api_key"),
            ),
            answer=record(
                {
                    "translatedText": told(_TEXTS, "The translation of each text."),
                    "alternatives": told(listed(_TEXTS), "Other translations of each text."),
                    "detectedLanguage": told(
                        either(_DETECTED, listed(_DETECTED)), "Of each text, where source is auto."
                    ),
                },
                *("alternatives", "detectedLanguage"),
            ),
        ),
        Described(
            path="/translate_file",
            name="TranslateFile",
            summary="Translates a document, and tells where to fetch it",
            fields=record({"file": told(FILE, "The document."), **_LANGUAGES, **_KEY}, "api_key"),
            answer=record({"translatedFileUrl": told(TEXT, "Address for ten minutes.")}),
        ),
        Described(
            path="/detect",
            name="Detect",
            summary="Tells in which languages a text may be, the most probable first",
            fields=record({"q": told(_TEXTS, "The text."), **_KEY}, "api_key"),
            answer=listed(_DETECTED),
        ),
        Described(
            path="/languages",
            name="Languages",
            summary="Lists the languages, and what each is translated to",
            answer=listed(
                record(
                    {
                        "code": told(TEXT, "Code of the language."),
                        "name": told(TEXT, "Its English name."),
                        "targets": told(listed(TEXT), "Codes that it is translated to."),
                    }
                )
            ),
            is_get=True,
        ),
        Described(
            path="/frontend/settings",
            name="Settings",
            summary="Describes the service for pages that are made for it",
            answer=record(
                {
                    "apiKeys": told(FLAG, "Whether a request may have a key."),
                    "charLimit": told({"type": "integer"}, "-1: there is none."),
                    "frontendTimeout": told(NUMBER, "Milliseconds before a page sends a text."),
                    "keyRequired": told(FLAG, "Whether a request needs a key."),
                    "language": told({"type": "object"}, "A source and a target to begin with."),
                    "suggestions": told(FLAG, "Whether translations may be suggested."),
                    "supportedFilesFormat": told(listed(TEXT), "Suffixes of documents."),
                }
            ),
            is_get=True,
        ),
    ],
    error="error",
)
