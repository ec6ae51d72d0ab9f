"""HTML: text between tags is a passage; tags, attributes, scripts and code stay as they are."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import accumulate, pairwise

from seqserve.documents.passage import Lines, Passage

# Source: https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source"}
_VOID |= {"track", "wbr"}
_NOT_TEXT = {"code", "kbd", "math", "pre", "samp", "script", "style", "svg", "template", "textarea"}
_NOT_TEXT |= {"var", "noscript", "iframe"}


_SPACE = re.compile(r"[ \t\r\n\f]+")
_TEXT = re.compile(r"[^ \t\r\n\f](?s:.*)(?<![ \t\r\n\f])")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each text between two tags.

    Elements with ``translate="no"`` or the class ``notranslate`` stay as they are, as do ``code``,
    ``pre``, ``script`` and the like. Source: the attribute of HTML,
    https://html.spec.whatwg.org/multipage/dom.html#attr-translate.
    """
    source = "".join(lines)
    return _passages(source, _Places(source).found())


@dataclass(frozen=True, slots=True)
class _Place:
    begin: int
    is_text: bool


class _Places(HTMLParser):
    """Finds where text and markup begin."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=False)
        self._source = source
        # The parser counts lines by "\n" alone.
        self._lines = [0, *accumulate(len(line) + 1 for line in source.split("\n"))]
        self._places: list[_Place] = []
        # Of each element that is open its name, and whether its text is translated.
        self._open: list[tuple[str, bool]] = []

    def found(self) -> list[_Place]:
        self.feed(self._source)
        self.close()
        self._places.append(_Place(len(self._source), False))
        return self._places

    @property
    def _is_text(self) -> bool:
        return not self._open or self._open[-1][1]

    def _add(self, *, is_text: bool) -> None:
        line, column = self.getpos()
        self._places.append(_Place(self._lines[line - 1] + column, is_text))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(is_text=False)
        if tag in _VOID:
            return
        given = dict(attrs)
        is_text = self._is_text
        if "translate" in given:
            is_text = given["translate"] in ("", "yes", None)
        if tag in _NOT_TEXT or "notranslate" in (given.get("class") or "").split():
            is_text = False
        self._open.append((tag, is_text))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(is_text=False)

    def handle_endtag(self, tag: str) -> None:
        self._add(is_text=False)
        names = [name for name, _ in self._open]
        if tag in names:
            # Elements within it that were left open end too.
            del self._open[len(names) - 1 - names[::-1].index(tag) :]

    def handle_data(self, data: str) -> None:
        self._add(is_text=self._is_text)

    def handle_entityref(self, name: str) -> None:
        self._add(is_text=self._is_text)

    def handle_charref(self, name: str) -> None:
        self._add(is_text=self._is_text)

    def handle_comment(self, data: str) -> None:
        self._add(is_text=False)

    def handle_decl(self, decl: str) -> None:
        self._add(is_text=False)

    def handle_pi(self, data: str) -> None:
        self._add(is_text=False)

    def unknown_decl(self, data: str) -> None:
        self._add(is_text=False)


def _passages(source: str, places: list[_Place]) -> Iterator[Passage]:
    begin = end = 0
    line = 1
    for first, last in _runs(places):
        # White space around a text, and line breaks within it, mean nothing.
        body = _TEXT.search(source, first, last)
        if body is None or not html.unescape(body[0]).strip():
            continue
        line += source.count("\n", begin, body.start())
        begin, before = body.start(), source[end : body.start()]
        text = _SPACE.sub(" ", html.unescape(body[0]))
        yield Passage(line=line, before=before, source=body[0], text=text, written=_escaped)
        end = body.end()
    yield Passage(line=line, before=source[end:])


def _runs(places: list[_Place]) -> Iterator[tuple[int, int]]:
    """Yields where each text begins and ends, its character references included."""
    begin = None
    for place, after in pairwise(places):
        if place.is_text and begin is None:
            begin = place.begin
        if begin is not None and not after.is_text:
            yield begin, after.begin
            begin = None


def _escaped(translation: str) -> str:
    return html.escape(translation, quote=False).replace("\N{NO-BREAK SPACE}", "&nbsp;")
