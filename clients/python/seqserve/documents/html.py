"""HTML: the text of a block is a passage; attributes, scripts and code stay as they are."""

from __future__ import annotations

import html
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import accumulate, groupby, pairwise

from seqserve.documents.inline import Kind, Piece, Syntax, passages
from seqserve.documents.passage import Lines, Passage

# Source: https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
_VOID |= {"track", "wbr"}
_NOT_TEXT = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea"}
_NOT_TEXT |= {"var", "noscript", "iframe"}
_INLINE = {"a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "del", "dfn", "em", "font"}
_INLINE |= {"i", "ins", "mark", "q", "s", "small", "span", "strike", "strong", "sub", "sup"}
_INLINE |= {"time", "tt", "u"}
_INLINE_VOID = {"img", "wbr"}


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text between tags of blocks; those within a text follow its words.

    A break (``br``) ends a text. Elements with ``translate="no"`` or the class ``notranslate`` stay
    as they are, as do ``code``, ``pre``, ``script`` and the like. Source: the attribute of HTML,
    https://html.spec.whatwg.org/multipage/dom.html#attr-translate.
    """
    return passages(_Pieces("".join(lines)).pieces(), _SYNTAX)


class _Pieces(HTMLParser):
    """Divides a document into text and tags."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self._source = source
        # The parser counts lines by "\n" alone.
        self._lines = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
        # Of each piece what it is, the name of its tag, and where it begins.
        self._places: list[tuple[Kind, str, int]] = []
        # Of each element that is open its name, and whether its text is translated.
        self._open: list[tuple[str, bool]] = []

    def pieces(self) -> list[Piece]:
        self.feed(self._source)
        self.close()
        self._places.append((Kind.BREAK, "", len(self._source)))
        head = Piece(Kind.BREAK, self._source[: self._places[0][2]])
        places = (
            Piece(kind, self._source[begin:end], name)
            for (kind, name, begin), (_, _, end) in pairwise(self._places)
        )
        # A text and the character references within it are one.
        runs = groupby(places, key=lambda piece: piece.kind is Kind.TEXT)
        return [head] + [
            piece
            for is_text, run in runs
            for piece in ([Piece(Kind.TEXT, "".join(each.raw for each in run))] if is_text else run)
        ]

    @property
    def _is_text(self) -> bool:
        return not self._open or self._open[-1][1]

    def _add(self, kind: Kind, name: str = "") -> None:
        line, column = self.getpos()
        self._places.append(
            (kind if self._is_text else Kind.BREAK, name, self._lines[line - 1] + column)
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self._add(Kind.EMPTY if tag in _INLINE_VOID else Kind.BREAK)
            return
        attributes = dict(attrs)
        is_text = self._is_text
        if "translate" in attributes:
            is_text = attributes["translate"] in ("", "yes", None)
        if tag in _NOT_TEXT or "notranslate" in (attributes.get("class") or "").split():
            is_text = False
        self._add(Kind.OPENING if tag in _INLINE and is_text else Kind.BREAK, tag)
        self._open.append((tag, is_text))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(Kind.EMPTY if tag in _INLINE_VOID else Kind.BREAK)

    def handle_endtag(self, tag: str) -> None:
        self._add(Kind.CLOSING if tag in _INLINE else Kind.BREAK, tag)
        names = [name for name, _ in self._open]
        if tag in names:
            # Elements within it that were left open end too.
            del self._open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        self._add(Kind.TEXT)

    def handle_entityref(self, name: str) -> None:
        self._add(Kind.TEXT)

    def handle_charref(self, name: str) -> None:
        self._add(Kind.TEXT)

    def handle_comment(self, data: str) -> None:
        self._add(Kind.EMPTY)

    def handle_decl(self, decl: str) -> None:
        self._add(Kind.BREAK)

    def handle_pi(self, data: str) -> None:
        self._add(Kind.BREAK)

    def unknown_decl(self, data: str) -> None:
        self._add(Kind.BREAK)


def _escaped(text: str) -> str:
    return html.escape(text, quote=False).replace("\N{NO-BREAK SPACE}", "&nbsp;")


_SYNTAX = Syntax(read=html.unescape, write=_escaped)
