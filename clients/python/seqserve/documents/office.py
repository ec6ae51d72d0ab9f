"""Parts of office documents: paragraphs, cells, comments, titles and labels of charts.

One table reads the parts of Word, PowerPoint and Excel, which share drawings and charts; another
one the parts of OpenDocument. Sources: ECMA-376, part 1, sections 17.3 (text), 18 (sheets),
19 (slides), 21.1 (drawings) and 21.2 (charts); [MS-ODRAWXML] (newer charts); [MS-XLSX] (threads of
comments); OASIS OpenDocument 1.3, part 3, sections 5, 6, 9 and 10.
"""

import re
from collections.abc import Container, Iterator
from dataclasses import replace
from functools import partial

from seqserve.documents.attributes import UNKNOWN, Languages
from seqserve.documents.inline import passages
from seqserve.documents.passage import Lines, Passage
from seqserve.documents.pieces import FIELD, Kind, Piece, code_piece, divided
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import REFERENCE, VALUE, XML, Node, Role, escaped, root_of
from seqserve.documents.xml_text import Table

_OFFICE = ("http://schemas.openxmlformats.org/{}/2006/main", "http://purl.oclc.org/ooxml/{}/main")
_NEWER = "http://schemas.microsoft.com/office/{}"
_OPEN_DOCUMENT = "urn:oasis:names:tc:opendocument:xmlns:"
# Codes within the text of a sheet's header: sections and formats, then fields.
_QUOTE = r"(?:\"|&quot;)"
_CODE = re.compile(
    rf"&amp;(?:(?P<field>[PNDTFAZG](?:[+-]\d+)?)|(?P<sign>&amp;)"
    rf"|{_QUOTE}(?:[^\"&]|&(?!quot;))*+{_QUOTE}|\d+|K(?:[\dA-Fa-f]{{6}}|\d\d[+-]\d{{3}})|[A-Za-z])"
)
# Parts of a run's format that concern the source: its language, and marks of the spelling.
_OF_SOURCE = re.compile(
    r"\s(?:lang|altLang|noProof|dirty|err|smtClean)\s*=\s*(?:\"[^\"]*\"|'[^']*')"
)
# Where a part tells the language of texts, except in a format of a run that is translated.
_LANGUAGE = re.compile(
    r"<(?:\w+:)?(?:lang|themeFontLang|defRPr|endParaRPr|rPr)(?:\s[\w:]+=\"[^\"<>]*\")+"
)
_CODE_OF_LANGUAGE = re.compile(r"(\s(?:w:val|w:eastAsia|lang)=\")([^\"]*)")
_OPEN_LANGUAGE = re.compile(r"(fo:language=\")([^\"]*)(\"\s+fo:country=\")([^\"]*)")
# Attributes that are read or heard: alternative texts, tips, entries of lists.
_SEEN = re.compile(
    r"(?<=\")(?:(?<=\sdescr=\")|(?<=\stitle=\")|(?<=\salt=\")|(?<=\sstring=\")"
    r"|(?<=\sw:tooltip=\")|(?<=\sw:displayText=\")|(?<=<w:listEntry\sw:val=\")"
    r"|(?<=<w:tblCaption\sw:val=\")|(?<=<w:tblDescription\sw:val=\"))([^\"]+)"
)
# Styles of code, of pandoc, LibreOffice and Word.
_STYLE = r"<(?:[^\s<>/:]+:)?{}\s[^<>]*[\"'](?:{})[\"']"
_CODE_STYLES = {
    "w:p": re.compile(_STYLE.format("pStyle", "SourceCode|HTMLPreformatted")),
    "w:r": re.compile(_STYLE.format("rStyle", "HTMLCode|SourceText|VerbatimChar")),
}
_PLACEHOLDER = re.compile(r"<(?:[^\s<>/:]+:)?ph[\s/>]")
# How sheets write characters that XML cannot have, such as carriage returns.
_CODED = re.compile(r"_x(?![dD][89a-fA-F])([\da-fA-F]{4})_")
_TO_CODE = re.compile(r"[\0-\x08\x0b-\x1f]|_(?=x[\da-fA-F]{4}_)")


def _piece(node: Node) -> Piece | None:
    """Reads code, and what begins or ends a field whose text is in runs."""
    if node.name == "w:r" and _is_code(node):
        return code_piece(node.raw, node.text)
    kinds = {"begin": Kind.OPENING, "end": Kind.CLOSING}
    if node.name != "w:fldChar" or node.attributes.get("fldCharType") not in kinds:
        return None
    kind, raw = kinds[node.attributes["fldCharType"]], node.raw
    return Piece(kind, raw, FIELD, parts=divided(raw, _SEEN, VALUE))


def _is_code(node: Node) -> bool:
    styles = _CODE_STYLES.get(node.name)
    form = next(node.elements(), None) if styles else None
    return bool(styles and form and form.name == f"{node.name}Pr" and styles.search(form.raw))


_HEADER = XML._replace(write=lambda text: escaped(text.replace("&", "&&")))


def _header(raw: str, _: Syntax, *, is_alone: bool) -> Iterator[Piece]:
    end = 0
    for code in _CODE.finditer(raw):
        yield Piece(Kind.TEXT, raw[end : code.start()], syntax=_HEADER)
        is_word = code["field"] or code["sign"]
        yield Piece(
            Kind.PLACEHOLDER if is_word else Kind.BREAK, code[0], text="&" if code["sign"] else None
        )
        end = code.end()
    yield Piece(Kind.TEXT, raw[end:], syntax=_HEADER)


def _decoded(text: str) -> str:
    return _CODED.sub(lambda code: chr(int(code[1], 16)), text)


_SHEET = XML._replace(
    read=lambda raw: _decoded(XML.read(raw)),
    write=lambda text: escaped(_TO_CODE.sub(lambda match: f"_x{ord(match[0]):04X}_", text)),
    escape=re.compile(f"{REFERENCE}|{_CODED.pattern}"),
)
_HEADERS = [
    f"s:{page}{place}" for page in ("odd", "even", "first") for place in ("Header", "Footer")
]
_PACKAGE = Table(
    namespaces={
        **{form.format("wordprocessingml"): "w" for form in _OFFICE},
        **{form.format("drawingml"): "a" for form in _OFFICE},
        **{form.format("spreadsheetml"): "s" for form in _OFFICE},
        **{form.format("presentationml"): "p" for form in _OFFICE},
        "http://schemas.openxmlformats.org/drawingml/2006/chart": "c",
        "http://purl.oclc.org/ooxml/drawingml/chart": "c",
        _NEWER.format("drawing/2014/chartex"): "cx",
        _NEWER.format("spreadsheetml/2018/threadedcomments"): "tc",
    },
    roles={
        **dict.fromkeys(("w:p", "a:p", "s:si", "s:is", "s:text"), Role.BLOCK),
        **dict.fromkeys(("w:r", "a:r", "s:r"), Role.RUN),
        **dict.fromkeys(("w:rPr", "a:rPr", "s:rPr"), Role.FORMAT),
        **dict.fromkeys(("w:t", "a:t", "s:t"), Role.RUN_TEXT),
        **dict.fromkeys(("c:v", "cx:v", "cx:pt", "p:text", "tc:text", *_HEADERS), Role.RUN_TEXT),
        **dict.fromkeys(("w:tab", "w:ptab", "w:br", "w:cr", "a:br"), Role.KEPT),
        **dict.fromkeys(("w:del", "w:moveFrom", "w:pPr", "w:rt"), Role.POINT),
        **dict.fromkeys(("a:pPr", "a:endParaRPr", "s:rPh", "s:phoneticPr"), Role.POINT),
        **dict.fromkeys(("w:proofErr", "w:softHyphen", "w:lastRenderedPageBreak"), Role.NOTHING),
        # Parts of a run's format: the language and the checks of the source.
        **dict.fromkeys(("w:lang", "w:noProof"), Role.NOTHING),
        **dict.fromkeys(("w:ins", "w:moveTo", "w:hyperlink", "w:smartTag"), Role.INLINE),
        **dict.fromkeys(("w:sdt", "w:sdtContent", "w:customXml", "w:dir", "w:bdo"), Role.INLINE),
        **dict.fromkeys(("w:ruby", "w:rubyBase"), Role.INLINE),
        "Fallback": Role.NOTE,  # the same again, for older programs
        # The number of a slide, and its date.
        "a:fld": Role.PROTECTED,
        **dict.fromkeys(("c:numCache", "c:numLit", "cx:numDim"), Role.DATA),
    },
    characters={"w:noBreakHyphen": "\N{NON-BREAKING HYPHEN}"},
    piece=_piece,
    strings=dict.fromkeys(_HEADERS, _header),
    values={"": _SEEN},
    of_source=_OF_SOURCE,
    bare={"a:r"},
)
"""Runs with another format than the first follow their words, as links, fields and inserted text
do; tabs, breaks and frames divide a paragraph."""


_OPEN_CODE = {"Source_20_Code", "Source_20_Text", "Source_Text", "Verbatim_20_Char"}
# Pandoc's styles of code. LibreOffice has no such style without properties, and gives the texts of
# a plain file the style that these are based on.
_PANDOC_CODE = re.compile(
    r"<style:style style:name=\"([^\"<>]*+)\" style:family=\"paragraph\""
    r" style:parent-style-name=\"Preformatted_20_Text\">\s*+</style:style>"
)
# Styles of OpenDocument that raise their text.
_RAISED = re.compile(
    r"<style:style\s(?:(?!style:name)[^<>])*+style:name=\"([^\"<>]*+)\"[^<>]*+>\s*+"
    r"<style:text-properties\s(?:(?!style:text-p)[^<>])*+style:text-position=\"(?:super|[1-9])"
)


# A chart of LibreOffice has the cells of a series as the description of nothing.
_CELL_NAME = re.compile(r"\$?[A-Z]{1,3}\$?\d{1,7}")


def _open_piece(node: Node) -> Piece | None:
    is_code = node.name == "text:span" and node.attributes.get("style-name") in _OPEN_CODE
    return code_piece(node.raw, node.text) if is_code else None


def _open_role(
    code: Container[str], raised: Container[str], node: Node, parent: Node
) -> Role | None:
    if node.attributes.get("style-name") in code:
        return Role.KEPT if node.name == "text:p" else Role.PROTECTED
    if node.name == "text:span" and node.attributes.get("style-name") in raised:
        return None if node.has_words else Role.POINT
    if node.name == "svg:desc" and parent.name == "g":
        return Role.DATA if _CELL_NAME.fullmatch(node.text.rpartition(".")[2]) else None
    cell = parent if node.name == "text:p" else node
    told = cell.attributes
    is_data = "formula" in told or told.get("value-type", "string") != "string"
    if cell.name != "table:table-cell" or not is_data:
        return None
    # Comments and frames are next to the text of a cell.
    has_others = cell is node and any(each.name != "text:p" for each in node.elements())
    return Role.NOTE if has_others else Role.DATA


_OPEN = Table(
    namespaces={
        **{f"{_OPEN_DOCUMENT}{name}:1.0": name for name in ("text", "office", "table")},
        f"{_OPEN_DOCUMENT}svg-compatible:1.0": "svg",
        f"{_OPEN_DOCUMENT}presentation:1.0": "presentation",
    },
    roles={
        **dict.fromkeys(("text:p", "text:h", "text:index-title-template"), Role.BLOCK),
        **dict.fromkeys(("presentation:header-decl", "presentation:footer-decl"), Role.BLOCK),
        **dict.fromkeys(("text:tab", "text:line-break"), Role.KEPT),
        **dict.fromkeys(("text:tracked-changes", "table:tracked-changes"), Role.DELETED),
        "office:annotation": Role.NOTE,
        **dict.fromkeys(("text:ruby-text", "text:number"), Role.POINT),
        **dict.fromkeys(("svg:title", "svg:desc"), Role.POINT),
        **dict.fromkeys(("text:span", "text:a", "text:meta", "text:ruby"), Role.INLINE),
        "text:ruby-base": Role.INLINE,
        **dict.fromkeys(("text:database-display", "text:user-field-get"), Role.PROTECTED),
        **dict.fromkeys(("text:author-name", "text:creator", "text:file-name"), Role.PROTECTED),
        **dict.fromkeys(("text:initial-creator", "text:user-defined"), Role.PROTECTED),
        "text:s": Role.SPACE,
    },
    piece=_open_piece,
    values={
        # Programs show it, and not the paragraph in the cell.
        "table:table-cell": re.compile(r"(?<=string-value=\")([^\"]+)"),
        **dict.fromkeys(("svg:title", "svg:desc"), re.compile(r"(?<=>)([^<]+)")),
        "text:label": re.compile(r"(?<=text:value=\")([^\"]+)"),
    },
    syntax=XML._replace(keeps_space=False),
)


def parse_open(lines: Lines, languages: Languages = UNKNOWN) -> Iterator[Passage]:
    """Yields the passages of a part of an OpenDocument.

    Tabs, notes, frames and breaks divide a paragraph.
    """

    def renamed(told: re.Match[str]) -> str:
        old = f"{told[2]}-{told[4]}"
        language, _, region = languages.regional(old).partition("-")
        return f"{told[1]}{language}{told[3]}{region or 'none'}"

    source = _OPEN_LANGUAGE.sub(renamed, "".join(lines))
    code = {*_OPEN_CODE, *_PANDOC_CODE.findall(source)}
    role = partial(_open_role, code, {*_RAISED.findall(source)})
    return replace(_OPEN, role=role).parse([source])


def parse(
    lines: Lines, kept: Container[str] = (), languages: Languages = UNKNOWN
) -> Iterator[Passage]:
    """Yields the passages of a part of a document of Word, PowerPoint or Excel.

    Args:
        lines: The part.
        kept: Texts of cells that stay, because other parts name them; see :func:`folded`.
    """

    def renamed(told: re.Match[str]) -> str:
        return _CODE_OF_LANGUAGE.sub(lambda code: code[1] + languages.regional(code[2]), told[0])

    document = _PACKAGE.read(_LANGUAGE.sub(renamed, "".join(lines)))
    name = root_of(document).name
    role = partial(_role, kept, name in ("p:sldMaster", "p:sldLayout"))
    table = replace(_PACKAGE, role=role, syntax=_SHEET if name.startswith("s:") else XML)
    return passages(table.pieces(document), table.syntax)


def _role(kept: Container[str], is_model: bool, node: Node, parent: Node) -> Role | None:
    if _is_code(node):
        return Role.KEPT if node.name == "w:p" else Role.PROTECTED
    if is_model and node.name == "p:sp" and _PLACEHOLDER.search(next(node.elements(), node).raw):
        # Placeholders of a layout have texts that no slide shows.
        return Role.POINT
    if node.name == "tc:text" and any(each.name == "tc:mentions" for each in parent.elements()):
        # Places in the text are counted elsewhere.
        return Role.DATA
    if kept and node.name in ("s:si", "s:is", "c:v"):
        texts = node.elements() if node.children else ()
        told = [each.text for each in texts if each.name in ("s:t", "s:r")]
        if folded("".join(told) or node.text) in kept:
            return Role.DATA
    return None


def folded(text: str) -> str:
    """Returns a text of a cell as it is compared with names: white space is a space."""
    return " ".join(_decoded(text).split())
