"""The formats of documents, and which one a file has."""

import codecs
import re
from contextlib import suppress
from enum import Enum
from functools import partial
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn, Self

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.passage import Parser
from seqserve.errors import OptionError


class Format(Enum):
    """The format of a document."""

    TEXT = "text", "plain_text.parse", "", ".txt", ".text"
    MARKDOWN = "markdown", "markdown.parse", ".md", ".mdx", ".markdown"
    HTML = "html", "html.parse", ".html", ".htm", ".xhtml"
    SRT = "srt", "subtitles.parse", ".srt"
    VTT = "vtt", "subtitles.parse", ".vtt"
    JSON_LINES = "jsonl", "json_files.parse_lines", ".jsonl", ".ndjson"
    JSON = "json", "json_files.parse", ".json"
    ARB = "arb", "json_files.parse_arb", ".arb"
    PO = "po", "gettext.parse", ".po", ".pot"
    ANDROID = "android", "app_strings.ANDROID.parse", ".xml"
    STRINGS = "strings", "app_strings.parse_apple", ".strings"
    PROPERTIES = "properties", "app_strings.parse_properties", ".properties"
    RESX = "resx", "app_strings.RESX.parse", ".resx", ".resw"
    XLIFF = "xliff", "xliff.parse", ".xliff", ".xlf"
    CSV = "csv", "table.parse", ".csv", ".tsv"
    DOCX = "docx", "office.parse", ".docx"
    PPTX = "pptx", "office.parse", ".pptx"
    XLSX = "xlsx", "office.parse", ".xlsx"
    ODT = "odt", "office.parse_open", ".odt"
    ODP = "odp", "office.parse_open", ".odp"
    ODS = "ods", "office.parse_open", ".ods"
    EPUB = "epub", "html.parse_xhtml", ".epub"

    parser: str
    """Its reader: a function or method of a module in this package."""
    suffixes: tuple[str, ...]

    def __new__(cls, value: str, parser: str, *suffixes: str) -> Self:
        """Makes a format, whose value is its name on the command line."""
        member = object.__new__(cls)
        member._value_ = value
        member.parser, member.suffixes = parser, suffixes
        return member


_SUFFIXES = {suffix: kind for kind in Format for suffix in kind.suffixes}
_NEWER = {".doc": ".docx", ".pdf": ".docx", ".ppt": ".pptx", ".rtf": ".docx", ".xls": ".xlsx"}
_OF_OFFICE = (
    frozenset(
        [
            *("officeDocument", "header", "footer", "footnotes", "endnotes", "glossaryDocument"),
            *("slide", "notesSlide", "slideLayout", "slideMaster", "comments", "threadedComment"),
            *("worksheet", "chartsheet", "sharedStrings", "drawing", "chart", "chartEx"),
            *("chartUserShapes", "diagramData", "diagramDrawing", "styles", "settings", "theme"),
        ]
    ),
    "_rels/.rels",
    r"word/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml",
)
# Its parts have these names by the standard, also those within parts.
_OPEN_DOCUMENT = (frozenset[str](), "", r"(?!word/|ppt/|xl/)(?:.*/)?(?:content|styles)\.xml")
ARCHIVES: dict[Format, tuple[frozenset[str], str, str]] = {
    **dict.fromkeys((Format.DOCX, Format.PPTX, Format.XLSX), _OF_OFFICE),
    **dict.fromkeys((Format.ODT, Format.ODP, Format.ODS), _OPEN_DOCUMENT),
    Format.EPUB: (frozenset(), "META-INF/container.xml", r"(?i:.*\.(?:xhtml|html|htm))"),
}
"""Formats whose documents are archives: the relations that lead to their texts, the part that lists
them, and the names of texts where no part does."""


def format_of(path: Path) -> Format:
    """Returns the format by the suffix of a file; one without a suffix is plain text."""
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        reason = f"{path.suffix} is not a known format"
        newer = _NEWER.get(path.suffix.lower())
        hint = f"save it as {newer}" if newer else "--format text translates every line"
        hint += ", --help lists the formats"
        raise OptionError(f"{path}: {reason}; {hint}")
    return kind


def is_named_as_document(path: Path) -> bool:
    """Returns whether a path ends with the suffix of a format."""
    return bool(path.suffix) and path.suffix.lower() in _SUFFIXES


# They may declare an encoding, and have references for what it lacks.
_MARKUP = {Format.HTML, Format.ANDROID, Format.RESX, Format.XLIFF}
TELLING = _MARKUP | {Format.PROPERTIES}
"""Formats that tell the encoding of a file, see :func:`encoding_of`."""
_DECLARATION = re.compile(
    rb"""\A\s*+<\?xml\b[^<>]*?\bencoding\s*=\s*["']([\w.:-]+)|<meta\b[^<>]*?\bcharset\s*=\s*["']?([\w.:-]+)""",
    re.IGNORECASE,
)
_DECLARED_BYTES = 1024
_ASCII = "".join(map(chr, range(128)))
# Pages that declare one of these mean windows-1252. Source: Encoding Standard, section 4.2.
_WESTERN = {"ascii", "iso8859-1"}
PAGES = {Format.HTML, Format.ARB, Format.PO, Format.XLIFF, *ARCHIVES}
"""Formats whose documents name their language."""


def encoding_of(kind: Format, content: bytes) -> str:
    """Returns the encoding of a whole file without a byte order mark.

    A file with other characters than those of ASCII is UTF-8 if it can be. Otherwise a file of
    Java is ISO 8859-1, and a page or a file of XML has the encoding that it declares.

    Sources: HTML Living Standard, section 13.2.3.2; XML 1.0, section 4.3.3.
    """
    told = "iso-8859-1" if kind is Format.PROPERTIES and not content.isascii() else "utf-8"
    if kind in _MARKUP and (declared := _DECLARATION.search(content[:_DECLARED_BYTES])):
        told = _known(*declared.groups(b""))
    if not content.isascii():
        with suppress(UnicodeDecodeError):
            content.decode()
            return "utf-8"
    return told


def declaring_utf_8(text: str) -> str:
    """Returns a page or a text of XML whose declared encoding, if it has one, is UTF-8."""
    declared = _DECLARATION.search(text[:_DECLARED_BYTES].encode("ascii", "replace"))
    if declared is None:
        return text
    begin, end = declared.span(declared.lastindex or 0)
    return f"{text[:begin]}utf-8{text[end:]}"


def errors_of(kind: Format, content: bytes) -> str:
    """Returns what ``str.encode`` does with characters that the encoding of a file lacks."""
    # A section of CDATA has no references.
    is_without = kind is Format.HTML or b"<![CDATA[" not in content
    return "xmlcharrefreplace" if kind in _MARKUP and is_without else "strict"


def _known(of_xml: bytes, of_page: bytes) -> str:
    with suppress(LookupError, UnicodeError):
        name = codecs.lookup((of_xml or of_page).decode()).name
        if of_page and name in _WESTERN:
            return "cp1252"
        # The markup around the declaration is ASCII, so what it declares must contain ASCII.
        if _ASCII.encode(name, "xmlcharrefreplace") == _ASCII.encode():
            return name
    return "utf-8"


def parser_of(
    kind: Format,
    *,
    field: str | None = None,
    column: str | None = None,
    joins_lines: bool = False,
    languages: Languages = UNKNOWN,
) -> Parser:
    """Imports the parser of a format, which may need a library."""
    module, _, function = kind.parser.partition(".")
    if kind is Format.TEXT and joins_lines:
        function = "parse_paragraphs"
    parse: Any = attrgetter(function)(import_module(f"seqserve.documents.{module}"))
    given: dict[str, object] = {"languages": languages} if kind in PAGES else {}
    if kind is Format.JSON_LINES:
        given = {"field": field or _missing("field", "JSON lines: what to translate, such as text")}
    if kind is Format.CSV:
        given = {
            "column": column or _missing("column", "CSV: the column to translate, by its name")
        }
    return partial(parse, **given)


def _missing(name: str, what: str) -> NoReturn:
    raise OptionError(f"--{name}: is required for {what}")
