"""XLIFF 1.2 and 2: what has a source and no target gets one; inline elements follow its words.

Sources: https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html,
https://docs.oasis-open.org/xliff/xliff-core/v2.1/xliff-core-v2.1.html.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from seqserve.documents.bilingual import target
from seqserve.documents.inline import Kind, Piece, joined_passages
from seqserve.documents.messages import is_message, pieces
from seqserve.documents.passage import Lines, ParseError, Passage
from seqserve.documents.xml_source import ENTITY, XML, Token, end_of, raw_of, tokens

# Elements that hold code, or stand for it.
_CODES = {"x", "ph", "it", "cp"}
# A code and its end, which may be elements far from each other.
_HALVES = {"bx", "ex", "bpt", "ept", "sc", "ec", "sm", "em"}
_STATE = re.compile(r"(\sstate\s*=\s*)(?:\"[^\"]*\"|'[^']*')")
# Of a target without a translation, in version 1.2.
_UNTRANSLATED = {"new", "needs-translation"}


class _Element(NamedTuple):
    begin: int
    """Index of its first tag."""
    end: int
    """Index after its last tag."""

    def inner(self, document: Sequence[Token]) -> Sequence[Token]:
        return document[self.begin + 1 : self.end - 1]


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each source that has no target, or an empty one.

    A target that is made has the state ``needs-review-translation`` in version 1.2; in version 2
    its segment has the state ``translated``. What has ``translate="no"`` stays.
    """
    document = tokens("".join(lines))
    roots = (token for token in document if token.kind in (Kind.OPENING, Kind.EMPTY))
    root = next(roots)
    if root.name != "xliff":
        raise ParseError(1, f"begins XML of {root.name!r}, not of XLIFF")
    return joined_passages(_parts(document))


def _parts(document: Sequence[Token]) -> Iterator[str | Passage]:
    index = 0
    # Whether what is open is translated.
    levels = [True]
    while index < len(document):
        token = document[index]
        is_unit = token.kind is Kind.OPENING and token.name in ("trans-unit", "segment")
        end = end_of(document, index) + 1 if is_unit else index + 1
        is_text = levels[-1] if token.kind is not Kind.OPENING else _is_text(token, levels[-1])
        if is_unit and is_text:
            yield from _unit(document[index:end])
        else:
            yield raw_of(document[index:end])
            if token.kind is Kind.OPENING and not is_unit:
                levels.append(is_text)
            elif token.kind is Kind.CLOSING:
                levels.pop()
        index = end


def _is_text(token: Token, is_text: bool) -> bool:
    return {"yes": True, "no": False}.get(token.attributes().get("translate", ""), is_text)


def _unit(unit: Sequence[Token]) -> Iterator[str | Passage]:
    children = _children(unit)
    source, old = children.get("source"), children.get("target")
    raw = raw_of(unit)
    text = source.inner(unit) if source else ()
    if source is None or not text or (old and not _is_empty(unit, old)):
        yield raw
        return
    if is_message(raw_of(text)):
        fault = "is a message of ICU, which is not translated in XLIFF"
        yield Passage(line=1, source=raw, fault=fault)
        return
    prefix = re.match(r"<((?:[^\s<>/:]+:)?)", unit[source.begin].raw)
    name = f"{prefix[1] if prefix else ''}target"
    # The target follows the source, and in version 1.2 the source in segments.
    before = old.begin if old else max(source.end, children.get("seg-source", source).end)
    tag = unit[old.begin].raw.removesuffix(">").removesuffix("/").rstrip() if old else f"<{name}"
    indent = unit[source.begin - 1].raw if not old and source.begin > 1 else ""
    head = raw_of(unit[1:before]) + (indent if not indent.strip() else "")
    if unit[0].name == "segment":
        opening = f"{_with_state(unit[0].raw, 'translated')}{head}{tag}>"
    else:
        opening = f"{unit[0].raw}{head}{_with_state(f'{tag}>', 'needs-review-translation')}"
    closing = f"</{name}>{raw_of(unit[old.end if old else before :])}"
    yield target(_pieces(text), XML, line=1, before="", kept=raw, opening=opening, closing=closing)


def _children(unit: Sequence[Token]) -> dict[str, _Element]:
    children: dict[str, _Element] = {}
    index = 1
    while index < len(unit) - 1:
        end = index + 1
        if unit[index].kind in (Kind.OPENING, Kind.EMPTY):
            end = end_of(unit, index) + 1
            children.setdefault(unit[index].name, _Element(index, end))
        index = end
    return children


def _is_empty(unit: Sequence[Token], old: _Element) -> bool:
    state = unit[old.begin].attributes().get("state", "new")
    return state in _UNTRANSLATED and not raw_of(old.inner(unit)).strip()


def _with_state(tag: str, state: str) -> str:
    if _STATE.search(tag):
        return _STATE.sub(rf'\g<1>"{state}"', tag, count=1)
    return f'{tag[:-1]} state="{state}">'


def _pieces(inner: Sequence[Token]) -> Iterator[Piece]:
    index = 0
    while index < len(inner):
        token = inner[index]
        end = index + 1
        if token.kind is Kind.TEXT:
            yield from pieces(token.raw, XML, others=ENTITY, is_whole=False)
        elif token.kind in (Kind.OPENING, Kind.EMPTY) and (
            token.name in _CODES | _HALVES or not _is_text(token, True)
        ):
            end = end_of(inner, index) + 1
            kind = Kind.EMPTY if token.name in _HALVES else Kind.PLACEHOLDER
            yield Piece(kind, raw_of(inner[index:end]))
        else:
            yield Piece(token.kind, token.raw, token.name)
        index = end
