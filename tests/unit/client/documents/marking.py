"""The passages of documents, «» around them, and what models may answer."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from random import Random

from tests.support.capitals import capitals

from seqserve.documents.formats import Format, parser_of
from seqserve.documents.passage import Link, Passage, Translation

ANY_TEXT = {Format.TEXT, Format.MARKDOWN, Format.HTML, Format.SRT, Format.VTT, Format.JSON_LINES}
"""Formats whose documents may be any text; others refuse what is malformed."""
CUE = "1\r\n00:00:01,000 --> 00:00:02,000\r\n"


def passages_of(kind: Format, text: str, *, joins_lines: bool = False) -> list[Passage]:
    """The passages of a document; joined, they are the document to the byte."""
    parser = parser_of(kind, field="text", column="text", joins_lines=joins_lines)
    found = list(parser(re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", text)))
    if not joins_lines:
        assert "".join(each.before + each.source for each in found) == text
    return found


def sent(passages: Iterable[Passage]) -> list[str]:
    """What a server is sent of them."""
    return [each.text for each in passages if each.has_words]


def marked(kind: Format, text: str, *, joins_lines: bool = False) -> str:
    """The document with each of its passages in place, marked."""
    passages = split(passages_of(kind, text, joins_lines=joins_lines))
    return written(passages, lambda each: Translation(f"«{each.text}»"))


def pairs(*cases: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Each document, and the same one marked; where they differ in more, both are given."""
    return [each if isinstance(each, tuple) else (unmarked(each), each) for each in cases]


def capital_pairs(*cases: str | tuple[str, str]) -> list[tuple[str, str]]:
    """Each document, and the same one where what is marked is in capitals."""
    return [
        each
        if isinstance(each, tuple)
        else (unmarked(each), re.sub("«(.*?)»", lambda part: part[1].upper(), each, flags=re.S))
        for each in cases
    ]


def unmarked(text: str) -> str:
    return text.replace("«", "").replace("»", "")


def same(passage: Passage) -> Translation:
    """A translation whose words are those of the source."""
    places = [unit.span() for unit in units(passage.text, passage)]
    return Translation(passage.text, tuple(Link(*place, *place) for place in places))


def aligned(passage: Passage, target: str, words: str) -> Translation:
    """A translation whose words come from these words of the source, in their order."""
    sources = {unit[0]: unit.span() for unit in units(passage.text, passage)}
    links = zip(words.split(), units(target, passage), strict=True)
    return Translation(target, tuple(Link(*sources[word], *unit.span()) for word, unit in links))


def shuffled(passage: Passage, random: Random) -> Translation:
    """A translation whose words are those of the source, in any order."""
    sources = units(passage.text, passage)
    random.shuffle(sources)
    target, links = "", []
    for source in sources:
        links.append(Link(*source.span(), len(target), len(target) + len(source[0])))
        target += f"{source[0]} "
    return Translation(target.rstrip(" "), tuple(links))


def written(passages: Iterable[Passage], answer: Callable[[Passage], Translation] = same) -> str:
    """The document with an answer for each passage with words."""
    return "".join(
        each.before + (each.written(answer(each)) if each.has_words else each.source)
        for each in passages
    )


def in_capitals(passages: Iterable[Passage]) -> str:
    """The document as a model writes it that answers each passage in capitals."""
    return written(passages, capitals)


def units(text: str, passage: Passage) -> list[re.Match[str]]:
    """What a server aligns: kept texts, words and marks."""
    kept = map(re.escape, sorted(passage.kept, key=len, reverse=True))
    return [*re.finditer("|".join([*kept, r"\w+", r"[^\w\s]"]), text)]


def split(passages: Iterable[Passage]) -> Iterator[Passage]:
    """Passages where those with markup are split at it."""
    for each in passages:
        if each.split_passages is None:
            yield each
        else:
            first, *others = each.split_passages()
            yield replace(first, before=each.before + first.before)
            yield from others
