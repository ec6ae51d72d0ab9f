"""The formats of documents, and which one a file has."""

from __future__ import annotations

from enum import Enum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

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


_SUFFIXES = {
    "": Format.TEXT,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".md": Format.MARKDOWN,
    ".markdown": Format.MARKDOWN,
    ".html": Format.HTML,
    ".htm": Format.HTML,
    ".xhtml": Format.HTML,
    ".srt": Format.SRT,
    ".vtt": Format.VTT,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".json": Format.JSON,
    ".arb": Format.ARB,
    ".po": Format.PO,
    ".pot": Format.PO,
    ".xml": Format.ANDROID,
    ".strings": Format.STRINGS,
    ".xliff": Format.XLIFF,
    ".xlf": Format.XLIFF,
    ".csv": Format.CSV,
    ".tsv": Format.CSV,
    ".docx": Format.DOCX,
    ".odt": Format.ODT,
    ".epub": Format.EPUB,
}
_PARSERS = {
    Format.TEXT: "plain_text.parse",
    Format.MARKDOWN: "markdown.parse",
    Format.HTML: "html.parse",
    Format.SRT: "subtitles.parse",
    Format.VTT: "subtitles.parse",
    Format.JSON_LINES: "json_files.parse_lines",
    Format.JSON: "json_files.parse",
    Format.ARB: "json_files.parse_arb",
    Format.PO: "gettext.parse",
    Format.ANDROID: "app_strings.parse_android",
    Format.STRINGS: "app_strings.parse_apple",
    Format.XLIFF: "xliff.parse",
    Format.CSV: "table.parse",
    Format.DOCX: "office.parse_docx",
    Format.ODT: "office.parse_odt",
    Format.EPUB: "html.parse_xhtml",
}
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


def parser_of(kind: Format, *, field: str | None, column: str | None, joins_lines: bool) -> Parser:
    """Imports the parser of a format, which may need a library."""
    module, _, function = _PARSERS[kind].partition(".")
    if kind is Format.TEXT and joins_lines:
        function = "parse_paragraphs"
    parse: Any = getattr(import_module(f"seqserve.documents.{module}"), function)
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
