"""HTML: the text of a block is a passage; attributes, scripts and code stay as they are."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby, pairwise

from turbohtml import Element, Namespace, Node, Token, TokenType, parse_fragment, tokenize
from turbohtml import parse as parse_document

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import Node as XmlNode
from seqserve.documents.xml_source import escaped
from seqserve.documents.xml_text import Role, Table

# Source: https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
_VOID |= {"track", "wbr"}
_CODE = {"code", "kbd", "math", "plaintext", "pre", "samp", "var", "xmp"}
_DATA = {"iframe", "noembed", "noframes", "script", "style", "template"}
_UNREAD = {"noscript", "svg", "textarea"}
# Why what is within an element stays. Nobody sees data, so it is not reported.
_NOT_TEXT = {
    name: why
    for why, names in {"code": _CODE, "data": _DATA, "unread": _UNREAD}.items()
    for name in names
}
_INLINE = {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "del", "dfn", "em", "font"}
_INLINE |= {"i", "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup"}
_INLINE |= {"time", "tt", "u"}
_KEPT_INLINE = _INLINE | {"code", "kbd", "samp", "var"}
_INLINE_VOID = {"img", "wbr"}
_WITHIN = {"", *_KEPT_INLINE, *_INLINE_VOID}
# What a document that begins with a part of a table is a part of; elsewhere such tags mean nothing.
_CONTEXTS = {"caption": "table", "tbody": "table", "tfoot": "table", "thead": "table"}
_CONTEXTS |= {"tr": "tbody", "td": "tr", "th": "tr"}
# The parser counts lines by all of them.
_LINE_END = re.compile(r"\r\n|\r|\n")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text between tags of blocks; those within a text follow its words.

    A break (``br``) ends a text. Elements with ``translate="no"`` or the class ``notranslate`` stay
    as they are, as do ``code``, ``pre``, ``script`` and the like. Source: the attribute of HTML,
    https://html.spec.whatwg.org/multipage/dom.html#attr-translate.
    """
    return passages(_pieces("".join(lines)), _SYNTAX)


def parse_xhtml(lines: Lines) -> Iterator[Passage]:
    """Yields the passages of a document that is XML; what is not is read as HTML."""
    source = "".join(lines)
    try:
        return _XHTML.passages(source)
    except ParseError:
        return passages(_pieces(source), _XHTML.syntax)


def _pieces(source: str) -> list[Piece]:
    line_begins = [0, *(end.end() for end in _LINE_END.finditer(source))]
    root = _tree(source)
    plain = _without_foreign(source, root, line_begins)
    kinds = [
        (kind, token.tag or "", why, line_begins[token.line - 1] + token.col)
        for token, kind, why in _kinds(plain, root)
    ]
    # What is unfinished at the end has no token.
    places = [(Kind.BREAK, "", "", 0), *kinds, (Kind.BREAK, "", "", len(source))]
    pieces = [
        Piece(kind, source[begin:end], name, why)
        for (kind, name, why, begin), (*_, end) in pairwise(places)
    ]
    # A text and the character references within it are one, also where it stays.
    joined: list[Piece] = []
    for (is_text, why), run in groupby(
        _with_whole_elements(pieces), key=lambda piece: (piece.kind is Kind.TEXT, piece.why)
    ):
        if is_text or why:
            raw = "".join(each.raw for each in run)
            joined.append(Piece(Kind.TEXT if is_text else Kind.BREAK, raw, why=why))
        else:
            joined += run
    return joined


def _with_whole_elements(pieces: list[Piece]) -> Iterator[Piece]:
    """Yields what stays within a text as one piece, from its first tag to its last."""
    opened: list[Piece] = []
    depth = 0
    for piece in pieces:
        name, is_end = opened[0].name if opened else piece.name, piece.raw.startswith("</")
        if piece.kind is Kind.BREAK and piece.name == name and name in _KEPT_INLINE:
            depth += -1 if is_end else 1
        if depth <= 0 and not opened:
            depth = 0
            yield piece
            continue
        opened.append(piece)
        if not depth:
            text = "".join(each.raw for each in opened if not each.raw.startswith("<"))
            raw = "".join(each.raw for each in opened)
            yield Piece(Kind.PLACEHOLDER, raw, text=stand_in(name, html.unescape(text)))
            opened = []
        elif piece.kind is not Kind.BREAK or piece.name not in _WITHIN:
            yield from opened
            opened, depth = [], 0
    yield from opened


def stand_in(name: str, text: str) -> str:
    """Returns what a model reads for an element that stays: its text.

    Code may be a word that the sentence has, too, and which is not kept there.
    """
    return text if name in _INLINE else f"`{text}`"


def _without_foreign(source: str, root: Node, line_begins: list[int]) -> str:
    """Blanks the tags within SVG and MathML, which a tokenizer alone would take for HTML.

    There ``<style/>`` is complete; in HTML it begins a style that goes on up to its end tag.
    """
    parts, last = [], 0
    for element in root.find_all(["svg", "math"]):
        location = element.source_location
        if location is None or location.end_tag is None:
            continue
        begin = line_begins[location.start_tag.end_line - 1] + location.start_tag.end_col
        end = line_begins[location.end_tag.start_line - 1] + location.end_tag.start_col
        if begin >= last:
            parts += [source[last:begin], source[begin:end].replace("<", " ")]
            last = end
    return "".join([*parts, source[last:]])


def _kinds(source: str, root: Node) -> Iterator[tuple[Token, Kind, str]]:
    begins, ends = _reasons_at_tags(root)
    why = ""
    for token in tokenize(source, resolve_references=False):
        kind, place = _kind(token), (token.line, token.col)
        before = why
        why = (ends if token.type is TokenType.END_TAG else begins).get(place, why)
        # A tag is text if what is within its element is.
        inner = why if kind is Kind.OPENING else before
        told = inner if kind is Kind.TEXT and inner != "data" else ""
        yield token, Kind.BREAK if inner else kind, told


def _tree(source: str) -> Node:
    tags = (each.tag for each in tokenize(source) if each.type is TokenType.START_TAG)
    if context := _CONTEXTS.get(next(tags, None) or ""):
        return parse_fragment(source, context, source_locations=True)
    return parse_document(source, source_locations=True)


_Places = dict[tuple[int, int], str]


def _reasons_at_tags(root: Node) -> tuple[_Places, _Places]:
    """Returns why what follows tags stays, nothing for text: tags that begin, and that end.

    Elements begin and end as the standard's parser builds them, also where tags are left out.
    """
    begins: _Places = {}
    ends: _Places = {}
    open_nodes: list[tuple[Node, str]] = [(root, "")]
    while open_nodes:
        node, why = open_nodes.pop()
        for child in node.children:
            if not isinstance(child, Element):
                continue
            inner = _why(child, why)
            if place := child.position:
                is_empty = child.tag in _VOID or (
                    child.namespace is not Namespace.HTML and not child.children
                )
                begins[place] = why if is_empty else inner
            if (location := child.source_location) and (tag := location.end_tag):
                ends[tag.start_line, tag.start_col] = why
            open_nodes.append((child, inner))
    return begins, ends


def _why(element: Element, why: str) -> str:
    if reason := _NOT_TEXT.get(element.tag):
        return reason
    if "notranslate" in (element.attr("class") or "").split():
        return "marked"
    translate = element.attr("translate")
    if translate is None:
        return why
    return {"": "", "yes": "", "no": "marked"}.get(translate.lower(), why)


def _kind(token: Token) -> Kind:
    match token.type:
        case TokenType.TEXT | TokenType.CHARACTER_REFERENCE:
            return Kind.TEXT
        case TokenType.START_TAG if token.tag in _INLINE_VOID:
            return Kind.EMPTY
        case TokenType.START_TAG if token.tag in _INLINE:
            return Kind.OPENING
        case TokenType.END_TAG if token.tag in _INLINE:
            return Kind.CLOSING
        case TokenType.COMMENT:
            return Kind.EMPTY
    return Kind.BREAK


_LONE_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
_MARKED = re.compile(r"\stranslate\s*=\s*[\"']?no\b|[\s\"']notranslate\b", re.IGNORECASE)


def tag_kind(raw: str) -> tuple[Kind, str, str, str]:
    """Returns the piece that a tag or a comment is, alone; what it begins is text or stays."""
    tag = _LONE_TAG.match(raw)
    if tag is None:
        return Kind.EMPTY, raw, "", ""
    name = tag[2].lower()
    why = _NOT_TEXT.get(name) or ("marked" if _MARKED.search(raw) else "")
    if name in _INLINE_VOID or (tag[3] and name in _INLINE):
        return Kind.EMPTY, raw, name, ""
    if name in _INLINE or (why and name not in _VOID):
        return Kind.CLOSING if tag[1] else Kind.OPENING, raw, name, why
    return Kind.BREAK, raw, name, ""


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\N{NO-BREAK SPACE}", "&nbsp;")


def _role(element: XmlNode, _: XmlNode) -> Role | None:
    is_named_so = "notranslate" in element.attributes.get("class", "").split()
    is_kept = is_named_so or element.attributes.get("translate", "").lower() == "no"
    if not is_kept:
        return None
    return Role.PROTECTED if element.name in _KEPT_INLINE else Role.MARKED


_SYNTAX = Syntax(read=html.unescape, write=_escaped)
_XHTML = Table(
    roles={
        **dict.fromkeys(_INLINE, Role.INLINE),
        **dict.fromkeys(_INLINE_VOID, Role.POINT),
        **dict.fromkeys({*_NOT_TEXT} - _KEPT_INLINE, Role.KEPT),
        **dict.fromkeys({*_NOT_TEXT} & _KEPT_INLINE, Role.PROTECTED),
    },
    other=Role.STRUCTURE,
    is_text=True,
    role=_role,
    syntax=_SYNTAX._replace(write=escaped),
)
