"""XML as its document writes it: a tree whose nodes know their places in the source.

Expat reads it, because it tells the byte where each tag begins, which lxml does not: what is not
translated stays to the byte. It expands no entity and reads no other file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Container, Iterator, Mapping
from enum import Enum
from functools import partial
from xml.parsers import expat

from seqserve.documents.passage import ParseError
from seqserve.documents.syntax import Syntax
from seqserve.words import has_words

_MAX_DEPTH = 256
REFERENCE = r"&(?:lt|gt|amp|quot|apos|#\d+|#x[\da-fA-F]+);"
"""References to characters, as a pattern; others are references to entities."""
ENTITY = r"&[^\s&;]+;"
"""References to entities, as a pattern."""
_REFERENCE = re.compile(REFERENCE)
_NO_ATTRIBUTES: Mapping[str, str] = {}
TEXT, CDATA, OTHER = "#text", "#cdata", "#other"
"""Names of parts that are not elements: texts, CDATA sections, and others, such as comments."""


class Role(Enum):
    """An element's role in its document."""

    BLOCK = "block"
    """A text for itself, such as a paragraph."""
    STRUCTURE = "structure"
    """It divides a text; blocks may be in it."""
    INLINE = "inline"
    """It follows its words."""
    FIELD = "field"
    """Its text is made by a program: it follows its words, and is kept if it has no letter."""
    PROTECTED = "protected"
    """It is read, and kept as it is."""
    POINT = "point"
    """It is at a place, and not read."""
    NOTE = "note"
    """It is at a place, and its blocks are texts for themselves."""
    SPACE = "space"
    """It is white space."""
    KEPT = "code"
    """It divides a text, and is not read."""
    MARKED = "marked"
    """It divides a text, and says that it is not to be translated."""
    OTHER_LANGUAGE = "other language"
    """It divides a text, and is not in the language of the document."""
    DATA = "data"
    """It divides a text, and means something to programs only."""
    DELETED = "deleted"
    """It divides a text, and no reader sees it."""
    NOTHING = "nothing"
    """A hint that means nothing in a translation."""
    RUN = "run"
    """A text with its format, in formats whose blocks are rows of runs."""
    FORMAT = "format"
    """The format of a run."""
    RUN_TEXT = "run text"
    """The text of a run; in no run a text for itself."""


class Node:
    """An element, or what is in one."""

    __slots__ = (
        *("name", "attributes", "children", "has_text", "has_words", "has_block", "is_mixed"),
        *("_source", "_begin", "_inner", "_last", "_end"),
    )

    def __init__(
        self, source: bytes, begin: int, name: str, attributes: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.attributes = attributes or _NO_ATTRIBUTES
        """By their names without prefixes."""
        self.children: list[Node] = []
        self.has_text = self.has_words = False
        """Whether a text within it is more than white space, and has a letter."""
        self.has_block = False
        """Whether an element within it is a text for itself."""
        self.is_mixed = False
        """Whether it has a text in no other element."""
        self._source, self._begin = source, begin
        self._inner = self._last = self._end = begin

    @property
    def raw(self) -> str:
        """The whole element, as the document has it."""
        return self._source[self._begin : self._end].decode()

    @property
    def opening(self) -> str:
        """The tag that begins it, which may be the whole element."""
        return self._source[self._begin : self._inner].decode()

    @property
    def inner(self) -> str:
        """The source between its tags."""
        return self._source[self._inner : self._last].decode()

    @property
    def closing(self) -> str:
        """The tag that ends it, if it has one."""
        return self._source[self._last : self._end].decode()

    @property
    def prefix(self) -> str:
        """The prefix of its name in the document, with the colon."""
        tag = re.match(r"<([^\s<>/:]+:)", self.opening)
        return tag[1] if tag else ""

    @property
    def text(self) -> str:
        """The texts within it."""
        if self.name == TEXT:
            return read_text(self.raw)
        if self.name == CDATA:
            return self.inner
        return "".join(child.text for child in self.children)

    def elements(self) -> Iterator[Node]:
        """Yields the elements in it, not those in others."""
        return (child for child in self.children if not child.name.startswith("#"))


def read(
    source: str,
    namespaces: Mapping[str, str] | None = None,
    blocks: Container[str] = (),
    texts: Collection[str] = (),
    known: Container[str] = (),
) -> Node:
    """Reads a document; returns its root node.

    Args:
        namespaces: Prefixes for the names of its elements, whatever the document uses; elements of
            other namespaces have none. None keeps the names, in a part of a document.
        blocks: Names of elements that are separate texts. texts: Names of the elements whose texts
        count; all if empty. known: Names of elements that are read completely; others without a
        counted text have no children.
    """
    if namespaces is not None:
        return _Builder(source, namespaces, blocks, texts, known).read()
    # With a definition that is not read, entities may be unknown.
    whole = f'<!DOCTYPE x SYSTEM "x"><x>{source}</x>'
    return root_of(_Builder(whole, None, blocks, texts, known).read())


def root_of(document: Node) -> Node:
    """Returns the element that has all others."""
    return next(document.elements())


class _Builder:
    def __init__(
        self,
        source: str,
        namespaces: Mapping[str, str] | None,
        blocks: Container[str],
        texts: Collection[str],
        known: Container[str],
    ) -> None:
        self._source = source.encode("utf-8", "surrogatepass")
        self._namespaces, self._blocks, self._texts = namespaces, blocks, texts
        self._known = known
        self._open = [Node(self._source, 0, "#document")]
        # Elements that end where the next part begins.
        self._last: tuple[Node, str] = self._open[0], "_inner"
        separator = None if namespaces is None else " "
        self._parser = parser = expat.ParserCreate("utf-8", separator)
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartCdataSectionHandler = partial(self._start, CDATA, {})
        parser.EndCdataSectionHandler = self._end
        parser.CommentHandler = parser.ProcessingInstructionHandler = self._other
        parser.EntityDeclHandler = self._declared
        # Without it entities would be expanded.
        parser.DefaultHandler = self._default

    def read(self) -> Node:
        try:
            self._parser.Parse(self._source, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code)
            raise ParseError(error.lineno, f"is not well-formed XML: {reason}") from None
        finally:
            # They refer to each other.
            self._parser = None  # type: ignore[assignment]
        [document] = self._open
        for node, place in (self._last, (document, "_last"), (document, "_end")):
            setattr(node, place, len(self._source))
        return document

    def _begin(self, name: str, attributes: Mapping[str, str] | None, ends: str) -> Node:
        at = self._parser.CurrentByteIndex
        setattr(*self._last, at)
        node = Node(self._source, at, name, attributes)
        self._open[-1].children.append(node)
        self._last = node, ends
        return node

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if len(self._open) > _MAX_DEPTH:
            reason = f"has an element within {_MAX_DEPTH} others, which is too deep"
            raise ParseError(self._parser.CurrentLineNumber, reason)
        if self._namespaces is not None and attributes:
            attributes = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        self._open.append(self._begin(self._named(name), attributes, "_inner"))

    def _named(self, name: str) -> str:
        if self._namespaces is None:
            return name
        space, _, local = name.rpartition(" ")
        prefix = self._namespaces.get(space)
        return f"{prefix}:{local}" if prefix else local

    def _end(self, _: str = "") -> None:
        node = self._open.pop()
        is_told = node.has_text or node.has_block or node.name in self._known
        if self._texts and not is_told:
            # A sheet may have millions of numbers.
            node.children.clear()
        node._last = at = self._parser.CurrentByteIndex
        setattr(*self._last, at)
        self._last = node, "_end"
        parent = self._open[-1]
        parent.has_text |= node.has_text
        parent.has_words |= node.has_words
        parent.has_block |= node.has_block or node.name in self._blocks

    def _text(self, text: str) -> None:
        node, _ = self._last
        if node.name != TEXT:
            self._begin(TEXT, None, "_end")
        holders = self._open[-2:] if self._open[-1].name == CDATA else self._open[-1:]
        if not text.isspace() and (not self._texts or holders[0].name in self._texts):
            for holder in holders:
                holder.has_text = holder.is_mixed = True
                holder.has_words = holder.has_words or has_words(text)

    def _default(self, _: str) -> None:
        # References to entities, or what is around the root.
        if len(self._open) == 1:
            self._begin(OTHER, None, "_end")
        elif self._last[0].name != TEXT:
            self._begin(TEXT, None, "_end")

    def _other(self, *_: str) -> None:
        self._begin(OTHER, None, "_end")

    def _declared(self, name: str, is_parameter: bool, value: str | None, *_: object) -> None:
        if is_parameter or (value and re.search("[&%<]", value)):
            reason = f"declares {name!r}, an entity that is more than text"
            raise ParseError(self._parser.CurrentLineNumber, reason)


def escaped(text: str) -> str:
    """Writes a text between tags."""
    return html.escape(text, quote=False)


def read_text(raw: str) -> str:
    """Reads a text between tags."""
    return _REFERENCE.sub(lambda match: html.unescape(match[0]), raw)


XML = Syntax(read=read_text, write=escaped, escape=_REFERENCE, keeps_space=True)
"""How XML writes texts."""
VALUE = XML._replace(write=lambda text: html.escape(text).replace("\n", "&#10;"))
"""How it writes them in tags."""
IN_CDATA = Syntax(str, lambda text: text.replace("]]>", "]]]]><![CDATA[>"), keeps_space=True)
"""How it writes them in a section of CDATA."""
