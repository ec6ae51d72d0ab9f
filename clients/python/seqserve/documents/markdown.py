"""Markdown: text of paragraphs, headings, lists and tables is a passage; code stays as it is.

Text is read without its escapes, and written with the escapes that it needs. In front matter
titles and the like are texts, all else is data.
Sources: https://spec.commonmark.org/0.31.2/, sections 2.4, 2.5 and 4 to 6; for front matter
https://yaml.org/spec/1.2.2/, section 7.3, https://toml.io/en/v1.0.0#string, and the pages of Hugo,
Jekyll, MkDocs Material, Docusaurus and VitePress on their fields.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from markdown_it.common.utils import unescapeAll
from markdown_it.token import Token

from seqserve.documents import html
from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.markdown_blocks import block_parser, title_of
from seqserve.documents.markdown_inline import ALONE, pieces
from seqserve.documents.passage import Lines, Passage, joined_passages
from seqserve.documents.syntax import Syntax
from seqserve.words import has_words

_PUNCTUATION = r"[!-/:-@\[-`{-~]"
_ESCAPED = re.compile(rf"\\({_PUNCTUATION})")
# Possible markup within a line.
_MARK = (
    rf"\\(?={_PUNCTUATION}|$)|[`\[\]]|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|~(?=~)|(?<=~)~"
    r"|<(?=[A-Za-z/!?])|&(?=#?\w+;)"
)
# Markup of Markdown extensions only.
_OF_EXTENSIONS = "#$@^{|}~"
# Marks of a heading, an item, a quote, a container, or of the line above a heading.
_START = re.compile(
    r"\A(?:(?=#{1,6}(?!\S)|[-+](?!\S)|-[- ]*$|=+\s*$|>|:(?!\S)|:{3}|/{3}|!{3}|\?{3}|={3}|\$\$)"
    r"|\d{1,9}(?=[.)](?!\S)))"
)
_LINE = re.compile(r"[^\r\n]*+(?:\r\n|\r|\n)|[^\r\n]+")
_FRONT_MATTER = re.compile(
    r"(?P<mark>---|\+\+\+)[ \t]*\r?\n.*?^(?:(?P=mark)|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.S | re.M
)
# The first line of a table that pandoc and reStructuredText draw.
_GRID = re.compile(r"\+(?:[-=:]{3,}\+)+\s")
_CELLS = ("td_open", "th_open")
_TITLED = ("indented_open", "container_colons_open", "container_slashes_open")
_COPIED = {
    **dict.fromkeys(["fence", "code_block", "script"], "code"),
    **dict.fromkeys(["math_block", "math_block_label"], "code"),
    "reference": "data",
}
# Marks of blocks between texts.
_MARKERS = re.compile(
    r"(?m)^[ \t>]*+(?:\[\^[^\]\n]+\]:|:{3,}.*|/{3,}.*|(?:!!!|\?\?\?|===).*)|^\".*"
)


class _Text(NamedTuple):
    """The text of a block: its lines, without what comes before them."""

    text: str
    begins: Sequence[int]
    """Where each line begins in the text."""
    places: Sequence[int]
    """Where each line begins in the document."""
    end: int
    """Where the last one ends there."""

    def place(self, at: int) -> int:
        """Returns where a character of the text is in the document."""
        line = bisect_right(self.begins, at) - 1
        return self.places[line] + at - self.begins[line]


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for the text of each block; links and emphasis follow its words.

    The lines of a paragraph become one, unless breaks are marked. Code and addresses stay as they
    are; HTML is read as HTML.
    """
    return joined_passages(_parts("".join(lines)))


def _parts(source: str) -> Iterator[str | Passage]:
    front = _FRONT_MATTER.match(source)
    end = front.end() if front else 0
    if front:
        yield from passages([*_fields(front[0])], _SYNTAXES["double"])
    rows = [*_LINE.finditer(source, end)]
    # Where each line begins, or in it the next block: a row of a table has several.
    places = [row.start() for row in rows]
    ends = [row.end() for row in rows]
    environment: dict[str, Any] = {}
    tokens = block_parser().parse(source[end:], environment)
    references = environment.get("references", {})
    for parent, token in pairwise([Token("", "", 0), *tokens]):
        if not token.map or token.map[0] >= len(rows):
            continue
        begin, last = places[token.map[0]], ends[token.map[1] - 1]
        if token.type == "inline":
            text = _text(source, token, places, ends)
            if text is not None:
                yield from _gap(source[end : text.places[0]])
                yield from _of_text(source, text, parent, references)
                end = text.end
        elif token.type in _TITLED:
            first, last = title_of(source, begin)
            if first < last:
                yield from _gap(source[end:first])
                title = _Text(source[first:last], [0], [first], last)
                yield from _of_text(source, title, parent, references)
                end = places[token.map[0]] = last
        elif token.type in _COPIED or token.type in ("html_block", "component"):
            yield from _gap(source[end:begin])
            yield from _block(source[begin:last], token)
            end = last
    yield from _gap(source[end:])


def _gap(between: str) -> Iterator[str | Passage]:
    if has_words(between) and has_words(_MARKERS.sub("", between)):
        yield Passage(line=0, source=between, fault="is at a place where no text is read")
    else:
        yield between


def _block(raw: str, token: Token) -> Iterator[str | Passage]:
    if token.type == "component":
        yield from passages([html.tag_piece(raw)], html.SYNTAX)
    elif token.type != "html_block":
        yield Passage(line=0, source=raw, copied=_COPIED[token.type])
    elif [*map(str.strip, raw.splitlines())] == [*map(str.strip, token.content.splitlines())]:
        yield from html.parse([raw])
    else:
        yield Passage(line=0, source=raw, fault="is HTML within a quote, which is not read")


def _text(source: str, token: Token, places: list[int], ends: list[int]) -> _Text | None:
    """Finds the text of a block in the document; nothing if it is not there.

    Its lines are joined by spaces; by line feeds where a break is marked, or a line is not text.
    """
    assert token.map
    number, last = token.map[0], max(token.map[1], token.map[0] + 1)
    contents = token.content.split("\n")
    is_broken = any(map(_ends_in_break, contents[:-1]))
    lines: list[str] = []
    begins: list[int] = []
    for content in map(str.strip, contents):
        # Marks of lists and quotes, and blank lines, are not in the content.
        while number < last and not (line := _line(source, content, places[number], ends[number])):
            number += 1
        if number >= last:
            return None
        begins.append(source.find(line, places[number]))
        places[number] = begins[-1] + len(line)
        lines.append(line)
    if not any(lines):
        return None
    for at, pair in enumerate(pairwise(lines)):
        lines[at] += "\n" if is_broken or any(map(ALONE.fullmatch, pair)) else " "
    starts = [0, *accumulate(map(len, lines[:-1]))]
    return _Text("".join(lines), starts, begins, begins[-1] + len(lines[-1]))


def _ends_in_break(line: str) -> bool:
    return line.endswith("  ") or bool((len(line) - len(line.rstrip("\\"))) % 2)


def _line(source: str, content: str, begin: int, end: int) -> str:
    forms = (content, content.replace("|", r"\|"))
    return next((form for form in forms if source.find(form, begin, end) >= 0), "")


def _of_text(
    source: str, text: _Text, parent: Token, references: Mapping[str, Any]
) -> Iterator[Passage]:
    if _GRID.match(text.text):
        fault = "is a table whose columns would move, which is not read"
        return iter([Passage(line=0, source=source[text.places[0] : text.end], fault=fault)])
    divided = [*pieces(text.text, references)]
    raws = (piece.raw for piece in divided if piece.kind is Kind.TEXT)
    parts = passages(divided, _syntax(raws, is_cell=parent.type in _CELLS))
    is_underlined = parent.type == "heading_open" and parent.markup in ("=", "-")
    if is_underlined or parent.type == "paragraph_open":
        parts = _at_start(parts)
    return _in_source(parts, source, text, 0)


def _in_source(parts: Iterable[Passage], source: str, text: _Text, begin: int) -> Iterator[Passage]:
    """Yields passages of a text as the document has them, with what is between its lines."""
    for part in parts:
        is_same = text.text.startswith(part.before, begin)
        middle = begin + len(part.before) if is_same else _source_place(part, text.text, begin)
        end = middle + len(part.source)
        first, at, last = map(text.place, (begin, middle, end))
        inner = partial(_in_source, source=source, text=text, begin=middle)
        before = source[first:at] if is_same else part.before
        yield part.changed(inner, before=before, source=source[at:last])
        begin = end


def _source_place(part: Passage, text: str, begin: int) -> int:
    """Finds a part behind a tag whose texts are translated: the tag ends as it did."""
    mark = part.before[-2:]
    places = (at for at in range(begin, len(text) + 1) if text.startswith(part.source, at))
    return next((at for at in places if text.endswith(mark, begin, at)), begin)


def _at_start(parts: Iterator[Passage]) -> Iterator[Passage]:
    """Yields passages, of which the first one is written so that its block stays what it is."""
    first = next(parts)
    if not first.before.strip() and first.has_words:
        write = first.written
        first = first.changed(
            _at_start, written=lambda translation: _START.sub(r"\g<0>\\", write(translation))
        )
    yield first
    yield from parts


def _syntax(texts: Iterable[str], *, is_cell: bool) -> Syntax:
    """Returns how a block is written: what extensions need is escaped where it is escaped there."""
    escaped = {mark for text in texts for mark in _ESCAPED.findall(text)}
    kept = [mark for mark in _OF_EXTENSIONS if mark in escaped or (is_cell and mark == "|")]
    marks = re.compile("|".join([_MARK, *map(re.escape, kept)]))
    return Syntax(unescapeAll, lambda text: marks.sub(r"\\\g<0>", text), has_menus=True)


# Fields that a reader sees, on the page or in a link to it.
_FIELD_NAMES = "title|subtitle|linkTitle|sidebar_label|description|summary|excerpt|tagline|details"
_FIELD_NAMES += "|caption|text|alt"
_BEGIN = r"(?!(?:true|false|null|yes|no)\s*$)[^\W\d_]"
_FIELD = re.compile(
    rf"^(?P<key>[ \t]*(?:-[ \t]+)?(?:{_FIELD_NAMES})(?:[ \t]*=|:)[ \t]*)"
    r"(?:\"(?P<double>(?:[^\"\\{}\r\n]|\\[\"\\])++)\"|'(?P<single>(?:[^'{}\r\n]|'')++)'"
    rf"|(?<=[: ])(?P<plain>{_BEGIN}(?:[^{{}}#:\r\n]|:(?!\s))*+))(?=[ \t]*(?:\#.*)?\r?$)",
    re.MULTILINE,
)
_BARE = re.compile(rf"{_BEGIN}(?:[^#:\r\n]|:(?!\s|\Z)|(?<!\s)\#)*+")
_QUOTED_MARK = re.compile(r"[\"\\]")


def _double(text: str) -> str:
    return _QUOTED_MARK.sub(r"\\\g<0>", text)


_SYNTAXES = {
    "double": Syntax(lambda raw: re.sub(r"\\(.)", r"\1", raw), _double),
    # TOML has no escape for it.
    "single": Syntax(lambda raw: raw.replace("''", "'"), lambda text: text.replace("'", "’")),
    "plain": Syntax(str, lambda text: text if _BARE.fullmatch(text) else f'"{_double(text)}"'),
}


def _fields(source: str) -> Iterator[Piece]:
    end = 0
    for field in _FIELD.finditer(source):
        kind = field.lastgroup or ""
        begin, last = field.span(kind)
        yield Piece(Kind.BREAK, source[end : field.start()], why="data")
        yield Piece(Kind.BREAK, source[field.start() : begin])
        yield Piece(Kind.TEXT, source[begin:last], syntax=_SYNTAXES[kind])
        end = last
    yield Piece(Kind.BREAK, source[end:], why="data")
