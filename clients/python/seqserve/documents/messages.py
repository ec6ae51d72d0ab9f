"""Texts of programs: placeholders, which a translation has exactly and once, and messages of ICU.

A placeholder is markup at a place: the model does not see it, and it is put after the word that it
followed (:mod:`.placement`). Of a message, the branches of a plural or a choice are texts, and its
syntax stays.
Some formats have a place for the translation beside a text, as PO and XLIFF (:func:`target`).
Source: https://unicode-org.github.io/icu/userguide/format_parse/messages/.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache, partial

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Passage
from seqserve.documents.syntax import SourceText, Syntax
from seqserve.words import PLACEHOLDER

_TAG = r"<(?P<end>/?)(?P<name>[A-Za-z0-9][\w:.-]*)(?:\s[^<>]*?)?(?P<empty>/?)>"
# The mark of the key that chooses a label, as in "&File" and "Save _As".
_KEY = r"(?<![\w&])&(?=\w)|(?<!\w)_(?=[A-Z][^_]*\Z)"
_VOID = {"br", "hr", "img", "input", "wbr"}


def pieces(raw: str, syntax: Syntax, *, others: str = "", is_whole: bool = True) -> Iterator[Piece]:
    """Divides a text of a program into words, placeholders and tags.

    Args:
        raw: The text as the document writes it.
        syntax: How it writes texts, with its escapes.
        others: A pattern of more placeholders.
        is_whole: Whether it is a whole text, so that white space around it does not belong to it.
    """
    text = SourceText(raw, syntax)
    begin, last = 0, len(text.text)
    if not last:
        # Escapes may say nothing, such as a line that goes on in the next one.
        yield Piece(Kind.BREAK, raw)
        return
    if is_whole:
        last = len(text.text.rstrip())
        begin = min(len(text.text) - len(text.text.lstrip()), last)
        yield Piece(Kind.BREAK, text.raw(0, begin))
    for match in _markup(others).finditer(text.text, begin, last):
        kind, name = _kind(text.text, match)
        yield Piece(Kind.TEXT, text.raw(begin, match.start()))
        yield Piece(kind, text.raw(*match.span()), name)
        begin = match.end()
    yield Piece(Kind.TEXT, text.raw(begin, last))
    if is_whole:
        yield Piece(Kind.BREAK, text.raw(last, len(text.text)))


@cache
def _markup(others: str) -> re.Pattern[str]:
    placeholders = f"{others}|{PLACEHOLDER}" if others else PLACEHOLDER
    return re.compile(
        rf"(?P<placeholder>{placeholders})|(?P<tag>{_TAG})|<!--(?:[^<]|<(?!!--))*?-->|{_KEY}", re.S
    )


def _kind(text: str, match: re.Match[str]) -> tuple[Kind, str]:
    name = match["name"] or ""
    if match["placeholder"]:
        return _half(text, match)
    if not match["tag"] or match["empty"] or name.lower() in _VOID:
        return Kind.EMPTY, name
    return Kind.END if match["end"] else Kind.START, name


def _half(text: str, match: re.Match[str]) -> tuple[Kind, str]:
    """Returns whether a placeholder begins or ends a pair, as in ``%1$shere%2$s``.

    It is next to a word on one side only. The word has at least two letters, because a single
    letter may be a unit: ``{hours}h{minutes}``.
    """
    before = text[max(0, match.start() - 2) : match.start()]
    behind = text[match.end() : match.end() + 2]
    # Placeholders of one syntax belong to each other.
    name = match[0][0]
    if name in "%{$" and len(behind) == 2 and behind.isalpha() and not before[-1:].isalnum():
        return Kind.START, name
    is_behind_text = len(before) == 2 and (before.isalpha() or before[1] in ".!?…")
    if name in "%{$" and is_behind_text and not behind[:1].isalnum():
        return Kind.END, name
    return Kind.PLACEHOLDER, ""


_BEGIN = re.compile(r"\{\s*+[\w.]++\s*+,\s*+(plural|select|selectordinal|choice)\s*+,")
# A quote without an end takes the rest.
_BRACE = re.compile(r"'[{}](?:[^']|'')*+(?:'|\Z)|[{}]")
# Marks in a Java choice, ``{0,choice,0#none|1#one|1<many}``: limits begin its texts, bars end them.
_LIMIT = re.compile(r"'(?:[^']|'')*+(?:'|\Z)|[{}|#<\u2264]|\\u2264")
# Deeper messages are read as texts; they do not occur in practice.
_MAX_DEPTH = 16


def is_message(text: str) -> bool:
    """Returns whether a text has a choice of several texts."""
    return bool(_BEGIN.search(text))


def message_pieces(
    raw: str, syntax: Syntax, *, others: str = "", depth: int = 0
) -> Iterator[Piece]:
    """Divides a text of a program into words, placeholders, tags, and the branches of a choice.

    ``others`` is as of :func:`pieces`; ``depth`` tells in how many branches the text is.
    """
    end = 0
    while depth < _MAX_DEPTH and (choice := _BEGIN.search(raw, end)):
        divide = _choices if choice[1] == "choice" else _branches
        branches = divide(raw, choice.end())
        if not branches:
            break
        if choice.start() > end:
            yield from pieces(raw[end : choice.start()], syntax, others=others)
        end = choice.start()
        for begin, last in branches[:-1]:
            yield Piece(Kind.BREAK, raw[end:begin])
            own = others if choice[1] in ("select", "choice") else "#"
            yield from message_pieces(raw[begin:last], syntax, others=own, depth=depth + 1)
            end = last
        yield Piece(Kind.BREAK, raw[end : branches[-1][1]])
        end = branches[-1][1]
    if end < len(raw):
        yield from pieces(raw[end:], syntax, others=others)


def _branches(raw: str, begin: int) -> list[tuple[int, int]]:
    """Returns where the texts of a choice begin and end, and then its end."""
    branches = []
    depth = 0
    for brace in _BRACE.finditer(raw, begin):
        if brace[0] == "{":
            depth += 1
            if depth == 1:
                begin = brace.end()
        elif brace[0] == "}":
            depth -= 1
            if depth == 0:
                branches.append((begin, brace.start()))
            elif depth < 0:
                return [*branches, (brace.start(), brace.end())] if branches else []
    return []


def _choices(raw: str, begin: int) -> list[tuple[int, int]]:
    """As :func:`_branches`, of a choice of Java."""
    branches = []
    depth, is_limit = 0, True
    for mark in _LIMIT.finditer(raw, begin):
        if mark[0] == "{":
            depth += 1
        elif mark[0] == "}" and depth:
            depth -= 1
        elif not depth and mark[0] in ("|", "}") and not is_limit:
            branches.append((begin, mark.start()))
            is_limit = True
            if mark[0] == "}":
                return [*branches, mark.span()]
        elif not depth and is_limit and not mark[0].startswith("'"):
            if mark[0] in ("|", "}"):
                return []
            begin, is_limit = mark.end(), False
    return []


def target(
    source: Iterable[Piece], syntax: Syntax, *, kept: str = "", opening: str = "", closing: str = ""
) -> Passage:
    """Returns the passage of a place for a translation.

    Args:
        kept: Content of the place, which stays without a translation. opening: Text before a
        translation. closing: Text after it.
    """
    parts = [*passages([*source], syntax)]
    texts = [index for index, part in enumerate(parts) if part.has_words]
    if not texts:
        return Passage(line=0, source=kept)
    if len(texts) > 1:
        fault = "cannot be translated in one piece: it is too long, or a choice of several texts"
        return Passage(line=0, source=kept, fault=fault)
    [index] = texts
    part = parts[index]
    opening += "".join(each.before + each.source for each in parts[:index]) + part.before
    closing = "".join(each.before + each.source for each in parts[index + 1 :]) + closing
    return part.changed(
        partial(_within, opening, closing),
        before="",
        source=kept,
        written=lambda translation: f"{opening}{part.written(translation)}{closing}",
    )


def _within(opening: str, closing: str, parts: Iterator[Passage]) -> Iterator[Passage]:
    for each in parts:
        yield replace(each, before=opening + each.before)
        opening = ""
    yield Passage(line=0, before=opening + closing)
