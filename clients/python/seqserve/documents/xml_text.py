"""The texts of XML, by a table for each format: which elements divide texts, and which are in them.

Elements that the table does not name belong to a text, divide it or are a point in it, depending on
their content.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from seqserve.documents.inline import passages
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.pieces import FIELD, Kind, Piece, divided
from seqserve.documents.syntax import Syntax
from seqserve.documents.xml_source import (
    CDATA,
    IN_CDATA,
    OTHER,
    TEXT,
    VALUE,
    XML,
    Node,
    Role,
    read,
    root_of,
)

# A run may declare prefixes that are in its format or in what it has.
_DECLARED = re.compile(r"\sxmlns(?::[^\s=]+)?\s*=\s*(?:\"[^\"]*\"|'[^']*')")
_UNREAD = {Role.KEPT, Role.MARKED, Role.OTHER_LANGUAGE, Role.DATA, Role.DELETED}


def _plain(raw: str, syntax: Syntax, *, is_alone: bool) -> Iterable[Piece]:
    return [Piece(Kind.TEXT, raw, syntax=None if syntax is XML else syntax)]


@dataclass(frozen=True, kw_only=True)
class Table:
    """How the elements of a format are read."""

    roles: Mapping[str, Role]
    """By the names of elements."""
    other: Role | None = None
    """Role of other elements in a text; None uses their content."""
    namespaces: Mapping[str, str] | None = field(default_factory=dict)
    """Prefixes of the names."""
    root: str = ""
    """Name of the element that has all others; empty if it may be any."""
    is_text: bool = False
    """Whether text that is in no block is read."""
    role: Callable[[Node, Node], Role | None] = lambda node, parent: None
    """Returns the role of an element whose name does not determine it."""
    piece: Callable[[Node], Piece | None] = lambda node: None
    """Reads an element that is a piece."""
    texts: Callable[..., Iterable[Piece]] = _plain
    """Reads a text between tags, with its syntax, and whether ``is_alone`` in its element."""
    tag: Callable[..., tuple[str, tuple[Piece, ...]]] | None = None
    """Reads the texts in a tag that begins an element, as :func:`.read_tag`; None if none has."""
    values: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """Matches texts in tags or of points, by the names of their elements; empty for any other."""
    characters: Mapping[str, str] = field(default_factory=dict)
    """Elements that are a character."""
    strings: Mapping[str, Callable[..., Iterable[Piece]]] = field(default_factory=dict)
    """Reads texts in no run, as ``texts`` does, by the names of their elements."""
    of_source: re.Pattern[str] | None = None
    """Attributes of the format of a run that mean nothing in a translation."""
    bare: Container[str] = ()
    """Runs whose white space counts without ``xml:space``."""
    syntax: Syntax = XML
    in_cdata: Syntax = IN_CDATA

    def read(self, source: str) -> Node:
        """Reads the elements of a document."""
        blocks = {name for name, role in self.roles.items() if role is Role.BLOCK}
        texts = {name for name, role in self.roles.items() if role is Role.RUN_TEXT}
        document = read(source, self.namespaces, blocks, texts, self.roles)
        if self.root and (name := root_of(document).name) != self.root:
            raise ParseError(1, f"begins XML of {name!r}, not of {self.root!r}")
        return document

    def parse(self, lines: Lines) -> Iterator[Passage]:
        """Yields the passages of a document."""
        return passages(self.pieces(self.read("".join(lines))), self.syntax)

    def pieces(self, node: Node, *, is_text: bool | None = None) -> list[Piece]:
        """Returns the pieces of what is in an element."""
        reader = _Reader(self)
        reader.read(node, self.is_text if is_text is None else is_text)
        return reader.pieces


class _Reader:
    def __init__(self, table: Table) -> None:
        self.pieces: list[Piece] = []
        self._table = table
        self._has_runs = Role.RUN in table.roles.values()

    def read(self, parent: Node, is_text: bool) -> None:
        for node in parent.children:
            if node.name.startswith("#"):
                texts = None if self._has_runs else self._table.texts
                self._add_text(node, is_text, len(parent.children) == 1, texts)
                continue
            role = self._role(node, parent, is_text)
            if role is Role.RUN:
                self._add_run(node)
            elif role is Role.RUN_TEXT:
                self._add_string(node)
            elif role in (Role.BLOCK, Role.STRUCTURE) or (role is Role.NOTE and not is_text):
                self._add_part(node, role, is_text)
            elif role in (Role.INLINE, Role.FIELD) and node.children:
                name = FIELD if role is Role.FIELD else node.name
                inner, opening, closing = self._unwrapped(node)
                self._add_opening(Kind.OPENING, inner, name, opening)
                self.read(inner, is_text)
                self._add(Kind.CLOSING, closing, name)
            elif role is Role.KEPT and self._table.tag:
                self._add_opening(Kind.BREAK, node, is_text=False)
                why = role.value if node.has_words else ""
                self.pieces.append(Piece(Kind.BREAK, node.inner, why=why))
                self._add(Kind.BREAK, node.closing)
            elif role in (Role.INLINE, Role.POINT) and self._table.tag:
                self._add_opening(Kind.EMPTY, node, opening=node.raw)
            else:
                self.pieces.append(self._single(node, role))

    def _add_part(self, node: Node, role: Role, is_text: bool) -> None:
        if role is Role.STRUCTURE and not (node.children or self._table.tag):
            # The children of an element without a text are not known.
            self._add_opening(Kind.BREAK, node, opening=node.raw)
            return
        if role is Role.NOTE:
            self._add(Kind.BREAK, node.opening)
        else:
            self._add_opening(Kind.BREAK, node)
        self.read(node, role is Role.BLOCK or (is_text and self._table.is_text))
        self._add(Kind.BREAK, node.closing)

    def _add_string(self, node: Node) -> None:
        self._add(Kind.BREAK, node.opening)
        texts = self._table.strings.get(node.name, self._table.texts)
        for each in node.children:
            self._add_text(each, True, len(node.children) == 1, texts)
        self._add(Kind.BREAK, node.closing)

    def _role(self, node: Node, parent: Node, is_text: bool) -> Role:
        table = self._table
        if role := table.role(node, parent) or table.roles.get(node.name):
            return role
        if not is_text or node.has_block:
            return Role.STRUCTURE
        return table.other or (Role.FIELD if node.has_text else Role.POINT)

    def _single(self, node: Node, role: Role) -> Piece:
        if piece := self._table.piece(node):
            return piece
        if role is Role.NOTE:
            begin, end = Piece(Kind.BREAK, node.opening), Piece(Kind.BREAK, node.closing)
            inner = self._table.pieces(node, is_text=False)
            return Piece(Kind.EMPTY, node.raw, parts=(begin, *inner, end))
        if role is Role.PROTECTED:
            return Piece(Kind.PLACEHOLDER, node.raw, text=node.text)
        if role in _UNREAD:
            return Piece(Kind.BREAK, node.raw, why=role.value if node.has_words else "")
        written, texts = "" if role is Role.NOTHING else None, self._values(node, node.raw)
        kind = Kind.SPACE if role is Role.SPACE else Kind.EMPTY
        return Piece(kind, node.raw, written=written, parts=texts)

    def _unwrapped(self, node: Node) -> tuple[Node, str, str]:
        """Returns the element whose texts are all in an element, and what is before and after."""
        inner, opening, closing = node, node.opening, node.closing
        while not self._table.tag:
            texts = [each for each in inner.children if each.has_text]
            if len(texts) != 1 or any(each.name in (TEXT, CDATA) for each in inner.children):
                # White space next to it is text too.
                return inner, opening, closing
            [only] = texts
            if self._role(only, inner, True) not in (Role.INLINE, Role.FIELD):
                return inner, opening, closing
            index = inner.children.index(only)
            before = "".join(each.raw for each in inner.children[:index])
            after = "".join(each.raw for each in inner.children[index + 1 :])
            opening += before + only.opening
            closing = only.closing + after + closing
            inner = only
        return inner, opening, closing

    def _add_opening(
        self, kind: Kind, node: Node, name: str = "", opening: str = "", *, is_text: bool = True
    ) -> None:
        raw = opening or node.opening
        texts = self._values(node, raw)
        if self._table.tag:
            raw, texts = self._table.tag(raw, is_text=is_text)
        self.pieces.append(Piece(kind, raw, name, parts=texts))

    def _values(self, node: Node, raw: str) -> tuple[Piece, ...]:
        values = self._table.values.get(node.name, self._table.values.get(""))
        return divided(raw, values, VALUE) if values else ()

    def _add(self, kind: Kind, raw: str, name: str = "", written: str | None = None) -> None:
        self.pieces.append(Piece(kind, raw, name, written=written))

    def _add_text(
        self,
        node: Node,
        is_text: bool,
        is_alone: bool,
        texts: Callable[..., Iterable[Piece]] | None,
    ) -> None:
        if not is_text:
            self._add(Kind.BREAK, node.raw)
        elif node.name == OTHER or (texts is None and node.name != CDATA):
            # White space between runs means nothing.
            self._add(Kind.EMPTY, node.raw, written=None if node.name == OTHER else "")
        elif node.name == TEXT:
            self.pieces += (texts or _plain)(node.raw, self._table.syntax, is_alone=is_alone)
        else:
            syntax = self._table.in_cdata
            self.pieces.append(Piece(Kind.OPENING, node.opening, CDATA, syntax=syntax))
            self.pieces += (texts or _plain)(node.inner, syntax, is_alone=False)
            self._add(Kind.CLOSING, node.closing, CDATA)

    def _add_run(self, run: Node) -> None:
        roles = self._table.roles
        first = next(run.elements(), None)
        is_formatted = first is not None and roles.get(first.name) is Role.FORMAT
        form = self._format(first) if first and is_formatted else ""
        declared = "".join(_DECLARED.findall(run.opening))
        opening, closing = f"<{run.prefix}r{declared}>{form}", f"</{run.prefix}r>"
        space = "" if run.name in self._table.bare else ' xml:space="preserve"'
        around = f"{opening}<{run.prefix}t{space}>", f"</{run.prefix}t>{closing}"
        syntax = self._table.syntax
        syntax = syntax._replace(write=partial(_run, *around, syntax.write))
        begin = Piece(Kind.OPENING, run.opening, f"run {form}", written="", syntax=syntax)
        self.pieces.append(begin)
        for node in run.children:
            role = roles.get(node.name)
            if role is Role.RUN_TEXT:
                self._add_nothing(node.opening)
                self._add_run_texts(node)
                self._add_nothing(node.closing)
            elif node.name in self._table.characters:
                character = self._table.characters[node.name]
                self.pieces.append(Piece(Kind.TEXT, node.raw, text=character))
            elif role in (Role.NOTHING, Role.FORMAT) or node.name == TEXT:
                self._add_nothing(node.raw)
            elif (
                (piece := self._table.piece(node))
                or role is Role.KEPT
                or (node.has_text and role is not Role.POINT)
            ):
                edge = Piece(Kind.EDGE, "", text=closing, written=opening)
                self.pieces += [Piece(Kind.CLOSING, "", begin.name, written=""), edge]
                if piece:
                    self.pieces.append(piece._replace(written=f"{opening}{node.raw}{closing}"))
                elif node.has_block:
                    self._add_part(node, Role.NOTE, False)
                elif node.has_text:
                    inner, before, after = self._unwrapped(node)
                    self._add(Kind.OPENING, before, node.name, f"{opening}{before}")
                    self.read(inner, True)
                    self._add(Kind.CLOSING, after, node.name, f"{after}{closing}")
                else:
                    self._add(Kind.BREAK, node.raw)
                self.pieces += [edge, begin._replace(raw="")]
            else:
                single = self._single(node, Role.POINT)
                self.pieces.append(single._replace(written=f"{opening}{node.raw}{closing}"))
        self._add(Kind.CLOSING, run.closing, begin.name, written="")

    def _add_nothing(self, raw: str) -> None:
        last = self.pieces[-1]
        if last.kind in (Kind.OPENING, Kind.EMPTY) and last.written == "":
            self.pieces[-1] = last._replace(raw=last.raw + raw)
        else:
            self._add(Kind.EMPTY, raw, written="")

    def _add_run_texts(self, text: Node) -> None:
        for node in text.children:
            if node.name == TEXT:
                self._add(Kind.TEXT, node.raw)
            elif node.name == CDATA:
                self._add_nothing(node.opening)
                self.pieces.append(Piece(Kind.TEXT, node.inner, syntax=IN_CDATA))
                self._add_nothing(node.closing)
            else:
                self._add_nothing(node.raw)

    def _format(self, node: Node) -> str:
        """Returns the format of a run, without what means nothing in a translation."""
        roles, of_source = self._table.roles, self._table.of_source
        kept = [each.raw for each in node.children if roles.get(each.name) is not Role.NOTHING]
        opening = of_source.sub("", node.opening) if of_source else node.opening
        return f"{opening}{''.join(kept)}{node.closing}" if kept or "=" in opening else ""


def _run(opening: str, closing: str, write: Callable[[str], str], text: str) -> str:
    return f"{opening}{write(text)}{closing}" if text else ""
