"""What DeepL's routes take and answer, for ``/openapi.json``."""

from __future__ import annotations

from seqserve_gateway.translation.openapi import (
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

_GLOSSARY = record(
    {
        "glossary_id": described(TEXT, "Name and languages."),
        "name": described(TEXT, "Name of its file."),
        "ready": described(FLAG, "Always true."),
        "source_lang": described(TEXT, "Code of its sources."),
        "target_lang": described(TEXT, "Code of its targets."),
        "creation_time": described(TEXT, "When its file was changed."),
        "entry_count": described(NUMBER, "How many entries it has."),
    }
)
_PAIR = record(
    {
        "source_lang": described(TEXT, "Code of the source."),
        "target_lang": described(TEXT, "Code of the target."),
    }
)
_TRANSLATION = record(
    {
        "detected_source_language": described(TEXT, "Code of the source."),
        "text": described(TEXT, "The translation."),
        "billed_characters": described(NUMBER, "Characters of the source."),
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
        PathDescription(
            path="/v2/translate",
            name="Translate",
            summary="Translates texts",
            fields=record(
                {
                    "text": described(either(array_of(TEXT), TEXT), "The texts, or one."),
                    "source_lang": described(
                        TEXT, "Code of the source; detected where it is missing."
                    ),
                    "target_lang": described(TEXT, "Code of the language to translate to."),
                    "tag_handling": described(one_of("html", "xml"), "Tags follow their words."),
                    "ignore_tags": described(
                        either(array_of(TEXT), TEXT), "Names of elements of XML that stay."
                    ),
                    "split_sentences": described(
                        one_of("0", "1", "nonewlines"), "0 translates a text as one sentence."
                    ),
                    "glossary_id": described(TEXT, "Id of a glossary; it needs source_lang."),
                    "show_billed_characters": described(FLAG, "Whether characters are counted."),
                },
                *_OPTIONAL,
            ),
            answer=record(
                {
                    "translations": described(array_of(_TRANSLATION), "In the order of the texts."),
                }
            ),
        ),
        PathDescription(
            path="/v2/languages",
            name="Languages",
            summary="Lists the languages of sources, or of targets",
            fields=record(
                {"type": described(one_of("source", "target"), "Which languages; source.")}, "type"
            ),
            answer=array_of(
                record(
                    {
                        "language": described(TEXT, "Code of the language."),
                        "name": described(TEXT, "Its English name."),
                        "supports_formality": described(FLAG, "Always false."),
                    },
                    "supports_formality",
                )
            ),
            is_get=True,
        ),
        PathDescription(
            path="/v2/usage",
            name="Usage",
            summary="Says that nothing is counted and nothing limited",
            answer=record(
                {
                    "character_count": described(NUMBER, "Always 0."),
                    "character_limit": described(NUMBER, "A number that nobody reaches."),
                }
            ),
            is_get=True,
        ),
        PathDescription(
            path="/v2/glossaries",
            name="Glossaries",
            summary="Lists the glossaries of the server",
            answer=record({"glossaries": described(array_of(_GLOSSARY), "All of them.")}),
            is_get=True,
        ),
        PathDescription(
            path="/v2/glossaries/{id}",
            name="Glossary",
            summary="Describes a glossary",
            answer=_GLOSSARY,
            is_get=True,
        ),
        PathDescription(
            path="/v2/glossaries/{id}/entries",
            name="Entries",
            summary="Lists the entries of a glossary, one a line",
            answer=TEXT,
            media_type="text/tab-separated-values",
            is_get=True,
        ),
        PathDescription(
            path="/v2/glossary-language-pairs",
            name="GlossaryPairs",
            summary="Lists the pairs of languages for which there may be glossaries",
            answer=record(
                {
                    "supported_languages": described(
                        array_of(_PAIR), "Pairs that one model translates."
                    )
                }
            ),
            is_get=True,
        ),
    ],
    error="message",
)
