"""Text with markup within it, such as a paragraph of HTML: one passage, without its markup.

The markup returns to its words, by the alignment of their translation (:mod:`.placement`). Anything
but a whole element divides the text: a tag without its counterpart, code, a break.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from seqserve.declarations import DECLARATIONS
from seqserve.documents.marked_text import BLANK, Mark, MarkedText
from seqserve.documents.passage import Link, Passage, Translation, fits, joined_passages
from seqserve.documents.pieces import Element, Kind, Piece, leaf, paired
from seqserve.documents.placement import placed
from seqserve.documents.syntax import Syntax
from seqserve.words import has_words

__all__ = ["Kind", "Piece", "passages"]

# To place markup takes as many steps as there are tags and words, multiplied.
_MAX_MARKS = 1000
_MAX_STEPS = 2_000_000
_MAX_KEPT = DECLARATIONS["keep"].max_items


def passages(pieces: Sequence[Piece], syntax: Syntax) -> Iterator[Passage]:
    """Yields the passages of a document; white space around and within a text means nothing."""
    return joined_passages(_parts(pieces, syntax))


def _parts(pieces: Sequence[Piece], syntax: Syntax) -> Iterator[str | Passage]:
    elements: list[Element] = []
    loose = [index for index, piece in enumerate(pieces) if piece.kind is Kind.BREAK]
    if not loose:
        elements, loose = paired(pieces, syntax)
    if not loose:
        yield from _of_elements(elements, syntax)
        return
    begin = 0
    for index in loose:
        yield from _parts(pieces[begin:index], syntax)
        yield from _copied(pieces[index], syntax)
        begin = index + 1
    yield from _parts(pieces[begin:], syntax)


def _copied(piece: Piece, syntax: Syntax) -> Iterator[str | Passage]:
    """Yields what stays, but for the texts in it."""
    if piece.parts:
        yield from _parts(piece.parts, syntax)
    elif piece.why and has_words(piece.raw):
        yield Passage(line=0, source=piece.raw, copied=piece.why)
    else:
        yield piece.raw


def _of_elements(elements: list[Element], syntax: Syntax) -> Iterator[str | Passage]:
    pieces = [*_pieces_of(elements)]
    is_text = any(each.has_words for each in elements)
    if not is_text and any(piece.parts for piece in pieces):
        for piece in pieces:
            yield from _copied(piece, syntax)
        return
    if not is_text:
        raw = _raw(elements)
        is_seen = any(each.has_text or each.has_placeholder for each in elements)
        yield Passage(line=0, source=raw, copied="no letter") if is_seen else raw
        return
    head, inner, tail, syntax = _trimmed(elements, syntax)
    for piece in head:
        yield from _copied(piece, syntax)
    if items := items_of(inner, syntax) if syntax.has_menus else []:
        for item in items:
            yield from _of_elements([item], syntax)
    else:
        yield from _text(inner, syntax)
    for piece in tail:
        yield from _copied(piece, syntax)


def _text(inner: list[Element], syntax: Syntax) -> Iterator[str | Passage]:
    builder = MarkedText(syntax)
    marks, write = builder.add(inner, syntax.write)
    raw, text = builder.text, builder.text.strip(" ")
    # White space around it is written with it where it belongs to a run.
    lead = len(raw) - len(raw.lstrip(" "))
    count = _count(marks)
    is_marked_too_much = count > _MAX_MARKS or count * len(text) > _MAX_STEPS
    if is_marked_too_much or len(builder.kept) > _MAX_KEPT or not fits(text):
        yield from _parts(_separate(inner, syntax), syntax)
        return
    tags = _Tags()
    for piece in _pieces_of(inner):
        if piece.parts and piece.raw not in tags:
            yield from _text_within(tags.setdefault(piece.raw, []), piece, syntax)
    first, last = inner[0].piece, inner[-1].piece
    before = (first.text or "") if first.kind is Kind.EDGE else ""
    after = last.markup if last.kind is Kind.EDGE else ""
    lost: list[str] = []

    def written(translation: Translation) -> str:
        whole = raw[:lead] + translation.text + raw[len(raw.rstrip(" ")) :]
        links = tuple(Link(*(place + lead for place in link)) for link in translation.alignment)
        target = placed(Translation(whole, links), raw, marks, write, lost)
        for tag, parts in tags.items():
            target = target.replace(tag, "".join(parts))
        return before + target + after

    def split() -> Iterator[Passage]:
        return passages(_separate(inner, syntax, tags), syntax)

    yield Passage(
        line=0,
        source=_raw(inner),
        text=text,
        kept=tuple(builder.kept),
        written=written,
        lost=lost,
        split_passages=split if marks else None,
    )


_Tags: TypeAlias = dict[str, list[str]]
"""Tags with texts in them, and what is written for their parts."""


def _text_within(written: list[str], piece: Piece, syntax: Syntax) -> Iterator[Passage]:
    """Yields the texts in a tag that follows its words, so that they come before it.

    Nothing is written in their place, but their translations in the tag, wherever it will be.
    """

    def write(part: Passage, at: int, translation: Translation) -> str:
        # The best one comes first.
        if written[at] == part.source:
            written[at] = part.written(translation)
        return ""

    for part in _parts(piece.parts, syntax):
        if isinstance(part, str):
            written.append(part)
            continue
        # The surroundings of a part in its document are not written with it.
        divided = [*part.split_passages()] if part.split_passages else [replace(part, before="")]
        written.append(part.before)
        for each in divided:
            at = len(written) + 1
            written += [each.before, each.source]
            own = replace(each, before="", source="", split_passages=None)
            yield replace(own, written=partial(write, each, at))


def _trimmed(
    elements: list[Element], syntax: Syntax
) -> tuple[list[Piece], list[Element], deque[Piece], Syntax]:
    """Returns what is before a text, the text, what is after it, and how it is written."""
    head: list[Piece] = []
    tail: deque[Piece] = deque()
    inner = deque(elements)
    while inner:
        while inner and not inner[0].is_read:
            head += inner.popleft().pieces()
        while inner and not inner[-1].is_read:
            tail.extendleft(reversed([*inner.pop().pieces()]))
        if len(inner) != 1 or (closing := inner[0].closing) is None or inner[0].is_run:
            break
        if closing.written is not None and inner[0].piece.written is None:
            # With a translation it gets the label that the link had.
            break
        head.append(inner[0].piece)
        tail.appendleft(closing)
        syntax = inner[0].piece.syntax or syntax
        inner = deque(inner[0].children)
    if inner and (first := inner[0].piece).kind is Kind.TEXT:
        stripped = first.raw.lstrip(BLANK)
        head.append(Piece(Kind.BREAK, first.raw[: len(first.raw) - len(stripped)]))
        inner[0] = leaf(first._replace(raw=stripped), syntax)
    if inner and (last := inner[-1].piece).kind is Kind.TEXT:
        stripped = last.raw.rstrip(BLANK)
        tail.appendleft(Piece(Kind.BREAK, last.raw[len(stripped) :]))
        inner[-1] = leaf(last._replace(raw=stripped), syntax)
        syntax = (last.syntax or syntax) if len(inner) == 1 else syntax
    return head, list(inner), tail, syntax


def _count(marks: Sequence[Mark]) -> int:
    return sum(1 + _count(mark.children) for mark in marks)


def _separate(
    elements: Iterable[Element], syntax: Syntax, tags: _Tags | None = None
) -> list[Piece]:
    """Divides a text at its markup; ``tags`` are written as they are there."""
    pieces: list[Piece] = []
    for piece in _pieces_of(elements):
        if piece.kind is Kind.TEXT:
            for part in (piece.syntax or syntax).parts(piece.raw):
                pieces += [piece._replace(raw=part), Piece(Kind.BREAK, "")]
        elif tags is not None:
            pieces.append(Piece(Kind.BREAK, "".join(tags.get(piece.raw, [piece.raw]))))
        else:
            pieces.append(Piece(Kind.BREAK, piece.raw, parts=piece.parts))
    return pieces


def _pieces_of(elements: Iterable[Element]) -> Iterator[Piece]:
    return (piece for each in elements for piece in each.pieces())


def _raw(elements: Iterable[Element]) -> str:
    return "".join(piece.raw for piece in _pieces_of(elements))


_SPACE = re.compile(r"([ \t\r\n\f]+)")
_SEPARATOR = re.compile(r"\s*(?:[›»‹«>|¦/\\→•·∙⋅・❯▸▶]\s*)+")
# Characters of a label; a longer text may be a sentence that is formatted in parts.
_MAX_LABEL = 40
# Valid contents between separators; each element is written as its letter of _letter.
_ITEMS = re.compile(r" *+(?:l *+)?(?:[te]|a(?: *+a)*+|[an](?: ++[an])*+|a(?: *+, *+a)++)? *+")


def items_of(elements: Sequence[Element], syntax: Syntax) -> list[Element]:
    """Divides a menu into its items and the separators between them; empty if it is not a menu.

    Between separators, an item is a text or an element. Between commas it is a link, and between
    white space a link or a short span.
    """
    if not any(element.closing for element in elements):
        return []
    parts = [part for element in elements for part in _divided(element, syntax)]
    letters = "".join(map(_letter, parts))
    counts = [len(re.findall(each, letters)) for each in ("[aen]", "[aent]")]
    is_menu = min(counts) > 0 and max(counts) > 1
    return parts if is_menu and all(map(_ITEMS.fullmatch, letters.split("|"))) else []


def _divided(element: Element, syntax: Syntax) -> Iterator[Element]:
    """Yields an element, or a text divided at separators, which are between white space."""
    piece = element.piece
    if piece.kind is not Kind.TEXT:
        yield element
        return
    text = ""
    for raw in _SPACE.split(piece.raw):
        if _SEPARATOR.fullmatch((piece.syntax or syntax).read(raw)):
            yield from (leaf(piece._replace(raw=each), syntax) for each in (text, raw) if each)
            text = ""
        else:
            text += raw
    if text:
        yield leaf(piece._replace(raw=text), syntax)


def _letter(element: Element) -> str:
    """Returns what an element may be in a menu: a separator, a comma, a label, an item."""
    text = _label(element)
    if not text.strip():
        return "e" if element.has_placeholder else " "
    if _SEPARATOR.fullmatch(text):
        return "|"
    if element.closing is None:
        is_comma = element.piece.kind is Kind.TEXT and text.strip() in (",", ";")
        return "," if is_comma else "l" if text.rstrip().endswith(":") else "t"
    if element.piece.name == "a":
        return "a"
    is_short = len(text.strip()) <= _MAX_LABEL and not text.lstrip()[:1].islower()
    return "n" if element.piece.name == "span" and is_short else "e"


def _label(element: Element) -> str:
    return element.text or "".join(map(_label, element.children))
