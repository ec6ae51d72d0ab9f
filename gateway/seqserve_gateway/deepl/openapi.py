"""What DeepL's routes take and answer, for ``/openapi.json``."""

from __future__ import annotations

from seqserve_gateway.translation.openapi import (
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

_GLOSSARY = record(
    {
        "glossary_id": told(TEXT, "Name and languages."),
        "name": told(TEXT, "Name of its file."),
        "ready": told(FLAG, "Always true."),
        "source_lang": told(TEXT, "Code of its sources."),
        "target_lang": told(TEXT, "Code of its targets."),
        "creation_time": told(TEXT, "When its file was changed."),
        "entry_count": told(NUMBER, "How many entries it has."),
    }
)
_PAIR = record(
    {
        "source_lang": told(TEXT, "Code of the source."),
        "target_lang": told(TEXT, "Code of the target."),
    }
)
_TRANSLATION = record(
    {
        "detected_source_language": told(TEXT, "Code of the source."),
        "text": told(TEXT, "The translation."),
        "billed_characters": told(NUMBER, "Characters of the source."),
    },
    "billed_characters",
)
_OPTIONAL = (
    *("source_lang", "tag_handling", "ignore_tags", "split_sentences", "glossary_id"),
    "show_billed_characters",
)

OPENAPI = openapi_of(
    "DeepL",
    [
        Described(
            path="/v2/translate",
            name="Translate",
            summary="Translates texts",
            fields=record(
                {
                    "text": told(either(listed(TEXT), TEXT), "The texts, or one."),
                    "source_lang": told(TEXT, "Code of the source; detected where it is missing."),
                    "target_lang": told(TEXT, "Code of the language to translate to."),
                    "tag_handling": told(one_of("html", "xml"), "Tags follow their words."),
                    "ignore_tags": told(
                        either(listed(TEXT), TEXT), "Names of elements of XML that stay."
                    ),
                    "split_sentences": told(
                        one_of("0", "1", "nonewlines"), "0 translates a text as one sentence."
                    ),
                    "glossary_id": told(TEXT, "Id of a glossary; it needs source_lang."),
                    "show_billed_characters": told(FLAG, "Whether characters are counted."),
                },
                *_OPTIONAL,
            ),
            answer=record(
                {
                    "translations": told(listed(_TRANSLATION), "In the order of the texts."),
                }
            ),
        ),
        Described(
            path="/v2/languages",
            name="Languages",
            summary="Lists the languages of sources, or of targets",
            fields=record(
                {"type": told(one_of("source", "target"), "Which languages; source.")}, "type"
            ),
            answer=listed(
                record(
                    {
                        "language": told(TEXT, "Code of the language."),
                        "name": told(TEXT, "Its English name."),
                        "supports_formality": told(FLAG, "Always false."),
                    },
                    "supports_formality",
                )
            ),
            is_get=True,
        ),
        Described(
            path="/v2/usage",
            name="Usage",
            summary="Says that nothing is counted and nothing limited",
            answer=record(
                {
                    "character_count": told(NUMBER, "Always 0."),
                    "character_limit": told(NUMBER, "A number that nobody reaches."),
                }
            ),
            is_get=True,
        ),
        Described(
            path="/v2/glossaries",
            name="Glossaries",
            summary="Lists the glossaries of the server",
            answer=record({"glossaries": told(listed(_GLOSSARY), "All of them.")}),
            is_get=True,
        ),
        Described(
            path="/v2/glossaries/{id}",
            name="Glossary",
            summary="Describes a glossary",
            answer=_GLOSSARY,
            is_get=True,
        ),
        Described(
            path="/v2/glossaries/{id}/entries",
            name="Entries",
            summary="Lists the entries of a glossary, one a line",
            answer=TEXT,
            media_type="text/tab-separated-values",
            is_get=True,
        ),
        Described(
            path="/v2/glossary-language-pairs",
            name="GlossaryPairs",
            summary="Lists the pairs of languages for which there may be glossaries",
            answer=record(
                {"supported_languages": told(listed(_PAIR), "Pairs that one model translates.")}
            ),
            is_get=True,
        ),
    ],
    error="message",
)
