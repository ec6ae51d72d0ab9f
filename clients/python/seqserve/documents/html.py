"""HTML: the text of a block is a passage; attributes, scripts and code stay as they are."""

import html
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby, pairwise

from turbohtml import Element, Namespace, Node, Token, TokenType, parse_fragment, tokenize
from turbohtml import parse as parse_document

from seqserve.documents.attributes import TEMPLATE, UNKNOWN, Languages, read_tag, without_templates
from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.pieces import code_piece
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import XML, Role, escaped, root_of
from seqserve.documents.xml_source import Node as XmlNode
from seqserve.documents.xml_text import Table

# Source: https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
_VOID |= {"track", "wbr"}
_CODE = {"code", "kbd", "math", "plaintext", "pre", "samp", "var", "xmp"}
_DATA = {"iframe", "noembed", "noframes", "script", "style"}
_UNREAD = {"noscript", "svg", "textarea"}
# Why what is within an element stays. Nobody sees data, so it is not reported.
_NOT_TEXT = {
    name: why
    for why, names in {"code": _CODE, "data": _DATA, "unread": _UNREAD}.items()
    for name in names
}
_OTHER_LANGUAGE = Role.OTHER_LANGUAGE.value
_INLINE = {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "del", "dfn", "em", "font"}
_INLINE |= {"i", "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup"}
_INLINE |= {"time", "tt", "u"}
_KEPT_INLINE = _INLINE | {"code", "kbd", "samp", "var"}
_INLINE_VOID = {"img", "wbr"}
# The context of a document that begins with a part of a table; elsewhere these tags mean nothing.
_CONTEXTS = {"caption": "table", "tbody": "table", "tfoot": "table", "thead": "table"}
_CONTEXTS |= {"tr": "tbody", "td": "tr", "th": "tr"}
# The parser counts lines by all of them.
_LINE_END = re.compile(r"\r\n|\r|\n")


def parse(lines: Lines, languages: Languages = UNKNOWN) -> Iterator[Passage]:
    """Yields a passage for each text between tags of blocks; those within a text follow its words.

    A break (``br``) ends a text. Attributes such as ``alt`` are texts. Elements with
    ``translate="no"`` or the class ``notranslate``, and those in another language than the page,
    stay as they are, as do ``code``, ``pre``, ``script`` and the like. Source: the attribute of
    HTML, https://html.spec.whatwg.org/multipage/dom.html#attr-translate.
    """
    return passages(_pieces("".join(lines), SYNTAX, languages), SYNTAX)


def parse_xhtml(lines: Lines, languages: Languages = UNKNOWN) -> Iterator[Passage]:
    """Yields the passages of a document that is XML; what is not is read as HTML."""
    source = "".join(lines)
    try:
        document = _XHTML.read(source)
    except ParseError:
        return passages(_pieces(source, _XHTML.syntax, languages), _XHTML.syntax)
    root = root_of(document)
    if root.name == "package":
        told = {"language": lambda raw, _, is_alone: [Piece(Kind.BREAK, languages.told(raw))]}
        return passages(replace(_BOOK, strings=told).pieces(document), XML)
    languages = languages.or_of(root.attributes.get("lang", ""))
    table = replace(
        _XHTML,
        role=partial(_role, root=root, languages=languages),
        tag=partial(read_tag, syntax=_XHTML.syntax, languages=languages),
    )
    return passages(table.pieces(document), table.syntax)


def _pieces(source: str, syntax: Syntax, languages: Languages) -> list[Piece]:
    line_begins = [0, *(end.end() for end in _LINE_END.finditer(source))]
    plain = without_templates(source)
    root = _tree(plain)
    page = root.find("html")
    languages = languages.or_of((page and page.attr("lang")) or "")
    reasons = _reasons_at_tags(root, languages)
    plain = _without_foreign(plain, root, line_begins)
    tokens = [*tokenize(plain, resolve_references=False)]
    places = [line_begins[token.line - 1] + token.col for token in tokens]
    # An unfinished tag at the end has no token.
    pieces = [Piece(Kind.BREAK, source[: next(iter(places), None)])]
    before = ""
    for token, (begin, end) in zip(tokens, pairwise([*places, len(source)]), strict=True):
        kind, raw = _kind(token), source[begin:end]
        texts: tuple[Piece, ...] = ()
        why = reasons.get((token.line, token.col), before)
        told = why if kind is Kind.OPENING and not before else ""
        is_kept = why in ("marked", _OTHER_LANGUAGE) or _MARKED.search(raw) or (before and why)
        if token.type is TokenType.START_TAG and not is_kept:
            raw, texts = read_tag(raw, syntax, languages, is_text=not why)
        if kind is Kind.TEXT and before:
            kind, told = Kind.BREAK, before if before != "data" else ""
        piece = Piece(kind, raw, token.tag or "", told, parts=texts)
        pieces += _text_pieces(piece) if kind is Kind.TEXT else [piece]
        before = why
    # A text and the character references within it are one, also where it stays.
    joined: list[Piece] = []
    for (is_text, why), run in groupby(
        with_whole_elements(pieces), key=lambda piece: (piece.kind is Kind.TEXT, piece.why)
    ):
        if is_text or why:
            raw = "".join(each.raw for each in run)
            joined.append(Piece(Kind.TEXT if is_text else Kind.BREAK, raw, why=why))
        else:
            joined += run
    return joined


def _text_pieces(text: Piece) -> Iterator[Piece]:
    for index, raw in enumerate(TEMPLATE.split(text.raw)):
        is_template = index % 2
        yield Piece(Kind.PLACEHOLDER, raw, text=raw) if is_template else text._replace(raw=raw)


def with_whole_elements(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yields an element that stays within a text as one piece, which a model reads as its text.

    Code may be a word that the sentence has, too, and which is not kept there; so it has marks.
    """
    opened: list[Piece] = []
    depth = 0
    for piece in pieces:
        if not opened and not (piece.kind is Kind.OPENING and piece.why):
            yield piece
            continue
        opened.append(piece if opened else piece._replace(why=""))
        first = opened[0]
        if piece.name == first.name:
            depth += (piece.kind is Kind.OPENING) - (piece.kind is Kind.CLOSING)
        if not depth:
            raw = "".join(each.raw for each in opened)
            text = html.unescape("".join(p.raw for p in opened if not p.raw.startswith("<")))
            text = text if first.name in _INLINE else f"`{text}`"
            rest = Piece(Kind.BREAK, raw[len(first.raw) :])
            parts = (*first.parts, rest) if first.parts else ()
            yield Piece(Kind.PLACEHOLDER, raw, text=text, parts=parts)
            opened = []
        elif piece.kind is Kind.BREAK and piece.name:
            yield from opened
            opened, depth = [], 0
    yield from opened


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


def _tree(source: str) -> Node:
    tags = (each.tag for each in tokenize(source) if each.type is TokenType.START_TAG)
    if context := _CONTEXTS.get(next(tags, None) or ""):
        return parse_fragment(source, context, source_locations=True)
    return parse_document(source, source_locations=True)


def _reasons_at_tags(root: Node, languages: Languages) -> dict[tuple[int, int], str]:
    """Returns why what follows each tag stays; nothing for text.

    Elements begin and end as the standard's parser builds them, also where tags are left out.
    """
    reasons: dict[tuple[int, int], str] = {}
    open_nodes: list[tuple[Node, str]] = [(root, "")]
    while open_nodes:
        node, why = open_nodes.pop()
        for child in node.children:
            if not isinstance(child, Element):
                # The content of a template is in a node that is no element.
                open_nodes.append((child, why))
                continue
            inner = _why(child.tag, child.attr, why, languages)
            if place := child.position:
                is_empty = child.tag in _VOID or (
                    child.namespace is not Namespace.HTML and not child.children
                )
                reasons[place] = why if is_empty else inner
            if (location := child.source_location) and (tag := location.end_tag):
                reasons[tag.start_line, tag.start_col] = why
            open_nodes.append((child, inner))
    return reasons


def _why(name: str, attribute: Callable[[str], str | None], why: str, languages: Languages) -> str:
    """Returns why what is in an element stays, which is in one where it stays for a reason."""
    if reason := _NOT_TEXT.get(name):
        return reason
    if "notranslate" in (attribute("class") or "").split():
        return "marked"
    translate = {"": "", "yes": "", "no": "marked"}.get((attribute("translate") or "-").lower())
    if translate is not None:
        return translate
    code = attribute("lang")
    if not code or name == "html" or why not in ("", _OTHER_LANGUAGE):
        return why
    return _OTHER_LANGUAGE if languages.is_other(code) else ""


def _kind(token: Token) -> Kind:
    match token.type:
        case TokenType.TEXT | TokenType.CHARACTER_REFERENCE:
            return Kind.TEXT
        case TokenType.START_TAG if token.tag in _INLINE_VOID:
            return Kind.EMPTY
        case TokenType.START_TAG if token.tag in _KEPT_INLINE:
            return Kind.OPENING
        case TokenType.END_TAG if token.tag in _KEPT_INLINE:
            return Kind.CLOSING
        case TokenType.COMMENT:
            return Kind.EMPTY
    return Kind.BREAK


_LONE_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*+)[^>]*?(/?)>")
_MARKED = re.compile(r"\stranslate\s*=\s*[\"']?no\b|[\s\"']notranslate\b", re.IGNORECASE)


def tag_piece(raw: str) -> Piece:
    """Returns the piece that a tag or a comment is, alone; what it begins is text or stays."""
    tag = _LONE_TAG.match(raw)
    if tag is None:
        return Piece(Kind.EMPTY, raw)
    name = tag[2].lower()
    why = _NOT_TEXT.get(name) or ("marked" if _MARKED.search(raw) else "")
    _, texts = ("", ()) if tag[1] or why == "marked" else read_tag(raw, SYNTAX, UNKNOWN)
    if name in _INLINE_VOID or (tag[3] and name in _INLINE):
        return Piece(Kind.EMPTY, raw, name, parts=texts)
    if name in _INLINE or (why and name not in _VOID):
        return Piece(Kind.CLOSING if tag[1] else Kind.OPENING, raw, name, why, parts=texts)
    return Piece(Kind.BREAK, raw, name, parts=texts)


def _role(node: XmlNode, _: XmlNode, root: XmlNode, languages: Languages) -> Role | None:
    why = _why(node.name, node.attributes.get, "", languages)
    if why not in ("marked", _OTHER_LANGUAGE) or (node is root and why != "marked"):
        return None
    return Role.PROTECTED if node.name in _KEPT_INLINE else Role(why)


def _piece(node: XmlNode) -> Piece | None:
    is_code = node.name in _KEPT_INLINE - _INLINE
    return code_piece(node.raw, node.text) if is_code else None


SYNTAX = Syntax(
    read=html.unescape,
    write=lambda text: escaped(text).replace("\N{NO-BREAK SPACE}", "&nbsp;"),
    has_menus=True,
)
_XHTML = Table(
    roles={
        **dict.fromkeys(_INLINE, Role.INLINE),
        **dict.fromkeys(_INLINE_VOID, Role.POINT),
        **dict.fromkeys({*_NOT_TEXT} - _KEPT_INLINE, Role.KEPT),
        **dict.fromkeys({*_NOT_TEXT} & _KEPT_INLINE, Role.PROTECTED),
    },
    other=Role.STRUCTURE,
    is_text=True,
    piece=_piece,
    syntax=SYNTAX._replace(write=escaped),
)
# What tells the pages of a book: its titles and languages.
_BOOK = Table(roles=dict.fromkeys(("title", "language"), Role.RUN_TEXT))
