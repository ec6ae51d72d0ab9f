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
_NOT_TEXT = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea"}
_NOT_TEXT |= {"var", "noscript", "iframe", "noembed", "noframes", "plaintext", "xmp"}
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
        (kind, token.tag or "", line_begins[token.line - 1] + token.col)
        for token, kind in _kinds(plain, root)
    ]
    # What is unfinished at the end has no token.
    places = [(Kind.BREAK, "", 0), *kinds, (Kind.BREAK, "", len(source))]
    pieces = [
        Piece(kind, source[begin:end], name)
        for (kind, name, begin), (_, _, end) in pairwise(places)
    ]
    # A text and the character references within it are one.
    runs = groupby(_with_whole_elements(pieces), key=lambda piece: piece.kind is Kind.TEXT)
    return [
        piece
        for is_text, run in runs
        for piece in ([Piece(Kind.TEXT, "".join(each.raw for each in run))] if is_text else run)
    ]


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


def _kinds(source: str, root: Node) -> Iterator[tuple[Token, Kind]]:
    begins, ends = _text_at_tags(root)
    is_text = True
    for token in tokenize(source, resolve_references=False):
        kind, place = _kind(token), (token.line, token.col)
        was_text = is_text
        is_text = (ends if token.type is TokenType.END_TAG else begins).get(place, is_text)
        # A tag is text if what is within its element is.
        is_inner = is_text if kind is Kind.OPENING else was_text
        yield token, kind if is_inner else Kind.BREAK


def _tree(source: str) -> Node:
    tags = (each.tag for each in tokenize(source) if each.type is TokenType.START_TAG)
    if context := _CONTEXTS.get(next(tags, None) or ""):
        return parse_fragment(source, context, source_locations=True)
    return parse_document(source, source_locations=True)


_Places = dict[tuple[int, int], bool]


def _text_at_tags(root: Node) -> tuple[_Places, _Places]:
    """Returns whether text follows tags: tags that begin an element, and tags that end one.

    Elements begin and end as the standard's parser builds them, also where tags are left out.
    """
    begins: _Places = {}
    ends: _Places = {}
    open_nodes: list[tuple[Node, bool]] = [(root, True)]
    while open_nodes:
        node, is_text = open_nodes.pop()
        for child in node.children:
            if not isinstance(child, Element):
                continue
            inner = _is_text(child, is_text)
            if place := child.position:
                is_empty = child.tag in _VOID or (
                    child.namespace is not Namespace.HTML and not child.children
                )
                begins[place] = is_text if is_empty else inner
            if (location := child.source_location) and (tag := location.end_tag):
                ends[tag.start_line, tag.start_col] = is_text
            open_nodes.append((child, inner))
    return begins, ends


def _is_text(element: Element, is_text: bool) -> bool:
    if element.tag in _NOT_TEXT or "notranslate" in (element.attr("class") or "").split():
        return False
    translate = element.attr("translate")
    if translate is None:
        return is_text
    return {"": True, "yes": True, "no": False}.get(translate.lower(), is_text)


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
    why = "code" if name in _NOT_TEXT else "marked" if _MARKED.search(raw) else ""
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
        **dict.fromkeys(_NOT_TEXT - _KEPT_INLINE, Role.KEPT),
        **dict.fromkeys(_NOT_TEXT & _KEPT_INLINE, Role.PROTECTED),
    },
    other=Role.STRUCTURE,
    is_text=True,
    role=_role,
    syntax=_SYNTAX._replace(write=escaped),
)
