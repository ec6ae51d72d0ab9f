"""The formats of documents, and which one a file has."""

from __future__ import annotations

from enum import Enum
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.passage import Parser
from seqserve.errors import OptionError


class Format(Enum):
    """The format of a document."""

    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    SRT = "srt"
    VTT = "vtt"
    JSON_LINES = "jsonl"
    JSON = "json"
    ARB = "arb"
    PO = "po"
    ANDROID = "android"
    STRINGS = "strings"
    XLIFF = "xliff"
    CSV = "csv"
    DOCX = "docx"
    ODT = "odt"
    EPUB = "epub"


# What reads each format, and the suffixes of its files.
_FORMATS: dict[Format, tuple[str, ...]] = {
    Format.TEXT: ("plain_text.parse", "", ".txt", ".text"),
    Format.MARKDOWN: ("markdown.parse", ".md", ".markdown"),
    Format.HTML: ("html.parse", ".html", ".htm", ".xhtml"),
    Format.SRT: ("subtitles.parse", ".srt"),
    Format.VTT: ("subtitles.parse", ".vtt"),
    Format.JSON_LINES: ("json_files.parse_lines", ".jsonl", ".ndjson"),
    Format.JSON: ("json_files.parse", ".json"),
    Format.ARB: ("json_files.parse_arb", ".arb"),
    Format.PO: ("gettext.parse", ".po", ".pot"),
    Format.ANDROID: ("app_strings.ANDROID.parse", ".xml"),
    Format.STRINGS: ("app_strings.parse_apple", ".strings"),
    Format.XLIFF: ("xliff.parse", ".xliff", ".xlf"),
    Format.CSV: ("table.parse", ".csv", ".tsv"),
    Format.DOCX: ("office.DOCX.parse", ".docx"),
    Format.ODT: ("office.ODT.parse", ".odt"),
    Format.EPUB: ("html.parse_xhtml", ".epub"),
}
_SUFFIXES = {suffix: kind for kind, (_, *suffixes) in _FORMATS.items() for suffix in suffixes}
ARCHIVES: dict[Format, tuple[frozenset[str], str, str]] = {
    Format.DOCX: (
        frozenset({"officeDocument", "header", "footer", "footnotes", "endnotes"}),
        "_rels/.rels",
        r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml",
    ),
    # Its parts have these names by the standard, also those within parts.
    Format.ODT: (frozenset(), "", r"(?:.*/)?(?:content|styles)\.xml"),
    Format.EPUB: (frozenset(), "META-INF/container.xml", r"(?i:.*\.(?:xhtml|html|htm))"),
}
"""Formats whose documents are archives: the relations that lead to their texts, the part that lists
them, and the names of texts where no part does."""


def format_of(path: Path) -> Format:
    """Returns the format by the suffix of a file; one without a suffix is plain text."""
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        reason = f"{path.suffix} is no format that is known"
        hint = "--format text translates every line of it, --help lists the formats"
        raise OptionError(f"{path}: {reason}; {hint}")
    return kind


def is_named_as_document(path: Path) -> bool:
    """Returns whether a path ends with the suffix of a format."""
    return bool(path.suffix) and path.suffix.lower() in _SUFFIXES


PAGES = {Format.HTML, Format.EPUB}
"""Formats whose documents name their language."""


def parser_of(
    kind: Format,
    *,
    field: str | None = None,
    column: str | None = None,
    joins_lines: bool = False,
    languages: Languages = UNKNOWN,
) -> Parser:
    """Imports the parser of a format, which may need a library."""
    module, _, function = _FORMATS[kind][0].partition(".")
    if kind is Format.TEXT and joins_lines:
        function = "parse_paragraphs"
    parse: Any = attrgetter(function)(import_module(f"seqserve.documents.{module}"))
    if kind in PAGES:
        return partial(parse, languages=languages)
    if kind is Format.JSON_LINES:
        if not field:
            raise OptionError(
                "--field: is required for JSON lines: what to translate, such as text"
            )
        return partial(parse, field=field)
    if kind is Format.CSV:
        if not column:
            raise OptionError("--column: is required for CSV: the column to translate, by its name")
        return partial(parse, column=column)
    parser: Parser = parse
    return parser
