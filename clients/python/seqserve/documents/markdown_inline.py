"""The text of a block of Markdown in pieces: words, emphasis, links, code, and what sites add.

markdown-it divides it, but tells no places within a line; so each token learns here where its
markup begins and ends.
Sources: https://spec.commonmark.org/0.31.2/, section 6; for what sites add, the pages of Hugo,
Jekyll, MkDocs Material, PyMdown, MyST, Docusaurus, VitePress, MDX, GitHub and Obsidian.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from markdown_it.parser_inline import ParserInline
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from seqserve.documents.html import tag_piece, with_whole_elements
from seqserve.documents.inline import Kind, Piece
from seqserve.documents.markdown_blocks import COMPONENT
from seqserve.documents.pieces import divided
from seqserve.documents.syntax import SHORTCODE, Syntax, enclosed
from seqserve.words import ADDRESS

# For some texts the parser takes quadratic time, so it gets as many characters, and of brackets, at
# once as are in no text that somebody writes.
_MOST_AT_ONCE = 4000
_BRACKETS = re.compile(r"(?:[^\[]*+\[){50}")
# An address may be a whole picture, which the parser reads in no time.
_DATA = "data:"
_PICTURE = re.compile(rf"{_DATA}[\w.+-]+/[\w.+;=-]+,[\w+/=%-]{{100,}}+")
_PAIRS = (("[", "]"), ("(", ")"), ("<", ">"))
_MOST_TRIED = 50


_COMMENT = "|".join([enclosed(r"\{#", "#", r"\}"), enclosed(r"\{/\*", "*", r"/\}")])
_ATTRIBUTES = rf"\{{(?::|[#.][\w-]|[\w-]+=)[^{{}}\n]{{0,500}}\}}|{_COMMENT}"
# An address in a link that has shortcodes, which have spaces.
_ADDRESS = (
    r"\]\((?=[^()\s{}]{0,500}\{)"
    rf"(?:[^()\s{{}}]|{SHORTCODE}){{1,500}}+[^()\n]{{0,500}}\)"
)
_ALERT = r"\[![A-Za-z]+\][-+]?"
_SNIPPET = r"-+8<-+[^\n]*+"
_NOTE = r"\^\[(?:[^\[\]\n]|\[[^\[\]\n]{0,200}\]){1,500}\]"
_ABBREVIATION = r"\*\[[^\]\n]{1,200}\]:"
_SPANS = {
    Kind.BREAK: rf"{COMPONENT}|^(?:{_ALERT}|\[[ xX]\](?=\s)|{_SNIPPET}|{_ABBREVIATION}|\[TOC\]$)"
    r"|^\| +",
    # And notes, raised and lowered numbers, and names of pictures.
    Kind.EMPTY: rf"{_NOTE}|(?<=\w)(?:\^[\w+-]{{1,9}}\^|~[\w+-]{{1,9}}~)(?!~)"
    rf"|!\[[^\[\]\n]{{0,500}}{_ADDRESS}|{_ATTRIBUTES}"
    r"|\[\^[^\]\n]{1,200}\]|(?<![\w:]):[a-z][\w+-]*+:(?![\w:])",
    # Expressions and roles in braces; keys of a keyboard, pages of a wiki.
    Kind.PLACEHOLDER: rf"{ADDRESS}|{SHORTCODE}|\{{[^{{}}\n]{{1,500}}\}}"
    r"|(?<!\w)\+\+[\w\"][^+\n]{0,40}(?:\+[^+\n]{1,40}){0,4}\+\+(?!\w)"
    r"|\[\[[^\[\]|\n]{1,500}\]\]",
    # A page of a wiki that has another name in the text, and a text with attributes.
    Kind.OPENING: r"(?:\[\[[^\[\]|\n]{1,500}\||(?<!\])\[)(?P<label>[^\[\]\n]{1,500})"
    rf"(?:\]\]|\]\{{[^{{}}\n]{{1,500}}\}}|{_ADDRESS})",
}
_SPAN = re.compile("|".join(f"(?P<{kind.name}>{_SPANS[kind]})" for kind in _SPANS), re.MULTILINE)
ALONE = re.compile(
    rf"(?:\s|{COMPONENT}|{SHORTCODE}|{_ATTRIBUTES})++"
    rf"|(?:{_ALERT}|{_SNIPPET}|{_ABBREVIATION}|\|\s).*+"
)
"""Matches a line that does not go on in the next one."""
# In place of an image, and as the title of an image or a link; without markup or escapes.
_TEXTS = re.compile(
    r"((?<=\A!\[)[^\[\]\\`*_~<&\n]+(?=\])"
    r"|(?<=\s\")[^\"\\&\n]+(?=\"\s*\)\Z)|(?<=\s')[^'\\&\n]+(?='\s*\)\Z))"
)
_IN_MARKUP = Syntax(str, lambda text: re.sub(r"[\[\]\\\"'`*<]", r"\\\g<0>", text))
_LABEL = re.compile(r"\]\[([^\[\]\n]{1,200})\]")
_Rule: TypeAlias = Callable[[StateInline, bool], bool]
_Place: TypeAlias = tuple[int, int, Piece]
_ELEMENTS = {"em", "strong", "s", "a"}
_POINTS = {
    "code_inline": Kind.PLACEHOLDER,
    **dict.fromkeys(["math_inline", "math_inline_double"], Kind.PLACEHOLDER),
    # An address in angle brackets.
    "link_open": Kind.PLACEHOLDER,
    "image": Kind.EMPTY,
    "softbreak": Kind.BREAK,
    "hardbreak": Kind.BREAK,
}


def pieces(text: str, references: Mapping[str, Any]) -> Iterator[Piece]:
    """Divides the text of a block; its pieces, joined, are the text.

    Args:
        text: Its lines, without what comes before them; at a line feed the text is divided.
        references: Addresses of links by their labels, as markdown-it has them.
    """
    # A site may add the addresses of more labels to each page.
    labels = map(normalizeReference, _LABEL.findall(text))
    references = {**{label: {"href": "", "title": ""} for label in labels}, **references}
    begin = 0
    while begin < len(text):
        place, end = begin, begin + _MOST_AT_ONCE
        # What is behind the end is not searched, or a long text would be searched again and again.
        while (place := text.find(_DATA, place, end - 1 + len(_DATA))) >= 0:
            picture = _PICTURE.match(text, place)
            end += len(picture[0]) if picture else 0
            place += len(picture[0] if picture else _DATA)
        if brackets := _BRACKETS.match(text, begin, end):
            end = brackets.end()
        if end < len(text):
            # Before a link, between sentences, or else words.
            marks = (" ",) if brackets else (". ", "\n", " ")
            ends = [each for mark in marks for each in _ends(text, mark, begin, end)]
            whole = (each for each in ends if _is_whole(text[begin:each]))
            end = next(whole, next(iter(ends), end))
        yield from with_whole_elements(_divided(text[begin:end], references))
        begin = end


def _ends(text: str, mark: str, begin: int, end: int) -> Iterator[int]:
    for _ in range(_MOST_TRIED):
        end = text.rfind(mark, begin + len(". "), end)
        if end < 0:
            return
        yield end + len(mark)


def _is_whole(text: str) -> bool:
    return all(text.count(begin) == text.count(end) for begin, end in _PAIRS)


def _divided(text: str, references: Mapping[str, Any]) -> Iterator[Piece]:
    end = 0
    for begin, last, piece in _State(text, references).places():
        yield Piece(Kind.TEXT, text[end:begin])
        yield piece
        end = last
    yield Piece(Kind.TEXT, text[end:])


class _State(StateInline):
    def __init__(self, text: str, references: Mapping[str, Any]) -> None:
        super().__init__(text, _parser(), {"references": references}, [])
        self.spans: dict[int, tuple[int, Kind]] = {}
        for match in _SPAN.finditer(text):
            begin, end = match.span()
            kind = Kind[match.lastgroup or ""] if match["label"] is None else Kind.OPENING
            if kind is Kind.OPENING:
                self.spans[match.end("label")] = end, Kind.CLOSING
                end = match.start("label")
            self.spans[begin] = end, kind
        self.begins = sorted(self.spans)
        self.md.inline.tokenize(self)
        for rule in self.md.inline.ruler2.getRules(""):
            rule(self)

    def pushPending(self) -> Token:
        token = super().pushPending()
        token.hidden = True
        return token

    def push(self, ttype: str, tag: str, nesting: Any) -> Token:
        token = super().push(ttype, tag, nesting)
        token.meta["begin"] = self.pos
        return token

    def places(self) -> Iterator[_Place]:
        """Yields where each piece that is not text begins and ends."""
        label = 0
        for token in self.tokens:
            begin, end = token.meta.get("place", (0, 0))
            if token.tag == "strong":
                # Its outer characters are tokens without content.
                begin, end = (begin - 1, end) if token.nesting > 0 else (begin, end + 1)
            raw = self.src[begin:end]
            if token.type == "html_inline":
                yield begin, end, tag_piece(raw)
            elif token.type == "span":
                is_tag = raw.startswith("<")
                if raw.startswith("^["):
                    yield begin, end, self._note(raw)
                    continue
                span = _with_texts(Piece(token.meta["kind"], raw, "[["))
                yield begin, end, tag_piece(raw) if is_tag else span
            elif token.nesting and token.tag in _ELEMENTS and token.info != "auto":
                kind = Kind.OPENING if token.nesting > 0 else Kind.CLOSING
                written = None
                if token.type == "link_open":
                    label = end
                elif token.type == "link_close" and raw in ("]", "][]"):
                    # Its text is the label of its address, which stays.
                    written = f"][{self.src[label:begin]}]"
                yield begin, end, _with_texts(Piece(kind, raw, token.tag, written=written))
            elif token.type in _POINTS and begin < end:
                text = f"`{token.content}`" if token.type == "code_inline" else None
                yield begin, end, _with_texts(Piece(_POINTS[token.type], raw, text=text))

    def _note(self, raw: str) -> Piece:
        texts = _divided(raw[2:-1], self.env["references"])
        parts = Piece(Kind.BREAK, "^["), *texts, Piece(Kind.BREAK, "]")
        return Piece(Kind.EMPTY, raw, parts=parts)


def _with_texts(piece: Piece) -> Piece:
    """Adds the texts of an image or of the end of a link."""
    has_texts = piece.kind in (Kind.EMPTY, Kind.CLOSING)
    return piece._replace(parts=divided(piece.raw, _TEXTS, _IN_MARKUP)) if has_texts else piece


class _Rules(ParserInline):
    def parse(self, src: str, md: Any, env: Any, tokens: list[Token]) -> list[Token]:
        # The text in place of an image stays with it.
        return tokens


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"maxNesting": 100})
    parser.inline = _Rules()
    parser.use(dollarmath_plugin, allow_space=False, allow_digits=False, double_inline=True)
    inline = parser.inline
    inline.ruler2.disable("fragments_join")
    inline.ruler.at("text", _text)
    inline.ruler.before("text", "span", _span)
    for name, rule in zip(inline.ruler.get_active_rules(), inline.ruler.getRules(""), strict=True):
        inline.ruler.at(name, partial(_placed, rule))
    return parser


def _placed(rule: _Rule, state: StateInline, silent: bool) -> bool:
    begin, count = state.pos, len(state.tokens)
    if not rule(state, silent):
        return False
    found = state.tokens[count:]
    tokens = [token for token in found if not token.hidden and "place" not in token.meta]
    for token in tokens:
        end = begin + len(token.content) if token.type == "text" else state.pos
        token.meta["place"] = begin, end
        begin = end
    if len(tokens) > 1 and tokens[0].type == "link_open" and tokens[0].info != "auto":
        first = tokens[0].meta["begin"] - 1
        tokens[0].meta["place"] = first, first + 1
        tokens[-1].meta["place"] = tokens[-1].meta["begin"], state.pos
    return True


def _span(state: Any, silent: bool) -> bool:
    end, kind = state.spans.get(state.pos, (0, None))
    if kind is None or end > state.posMax:
        return False
    if not silent:
        state.push("span", "", 0).meta["kind"] = kind
    # A note within the text of a link is not a nested link, although the parser takes it for one.
    is_note = silent and state.src.startswith("[^", state.pos)
    state.pos = state.pos + 1 if is_note else end
    return True


def _text(state: Any, silent: bool) -> bool:
    # As the parser's own rule, but it ends where a span begins, whatever its first character is.
    at = bisect_right(state.begins, state.pos)
    end = state.begins[at] if at < len(state.begins) else state.posMax
    found = state.md.inline.terminator_re.search(state.src, state.pos, end)
    end = min(found.start() if found else end, state.posMax)
    if end == state.pos:
        return False
    if not silent:
        state.append_pending(state.src[state.pos : end])
    state.pos = end
    return True
