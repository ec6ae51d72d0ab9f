"""The front matter of pages in Markdown: titles and the like are texts, all else is data.

Sources: https://yaml.org/spec/1.2.2/, section 7.3, https://toml.io/en/v1.0.0#string, and the pages
of Hugo, Jekyll, MkDocs Material, Docusaurus and VitePress on their fields.
"""

import re
from collections.abc import Iterator

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Passage
from seqserve.documents.syntax import Syntax

# Fields that a reader sees, on the page or in a link to it.
_FIELDS = "title|subtitle|linkTitle|sidebar_label|description|summary|excerpt|tagline|details"
_FIELDS += "|caption|text|alt"
_BEGIN = r"(?!(?:true|false|null|yes|no)\s*$)[^\W\d_]"
_FIELD = re.compile(
    rf"^(?P<key>[ \t]*(?:-[ \t]+)?(?:{_FIELDS})(?:[ \t]*=|:)[ \t]*)"
    r"(?:\"(?P<double>(?:[^\"\\{}\r\n]|\\[\"\\])++)\"|'(?P<single>(?:[^'{}\r\n]|'')++)'"
    rf"|(?<=[: ])(?P<plain>{_BEGIN}(?:[^{{}}#:\r\n]|:(?!\s))*+))(?=[ \t]*(?:\#.*)?\r?$)",
    re.MULTILINE,
)
_PLAIN = re.compile(rf"{_BEGIN}(?:[^#:\r\n]|:(?!\s|\Z)|(?<!\s)\#)*+")
_QUOTED = re.compile(r"[\"\\]")


def _double(text: str) -> str:
    return _QUOTED.sub(r"\\\g<0>", text)


_SYNTAXES = {
    "double": Syntax(lambda raw: re.sub(r"\\(.)", r"\1", raw), _double),
    # TOML has no escape for it.
    "single": Syntax(lambda raw: raw.replace("''", "'"), lambda text: text.replace("'", "’")),
    "plain": Syntax(str, lambda text: text if _PLAIN.fullmatch(text) else f'"{_double(text)}"'),
}


def parse_front_matter(source: str) -> Iterator[Passage]:
    """Yields the passages of the lines from a ``---`` or ``+++`` to the next one."""
    return passages([*_pieces(source)], _SYNTAXES["double"])


def _pieces(source: str) -> Iterator[Piece]:
    end = 0
    for field in _FIELD.finditer(source):
        kind = field.lastgroup or ""
        begin, last = field.span(kind)
        yield Piece(Kind.BREAK, source[end : field.start()], why="data")
        yield Piece(Kind.BREAK, source[field.start() : begin])
        yield Piece(Kind.TEXT, source[begin:last], syntax=_SYNTAXES[kind])
        end = last
    yield Piece(Kind.BREAK, source[end:], why="data")
