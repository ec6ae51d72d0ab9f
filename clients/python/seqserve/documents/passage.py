"""A part of a document that is translated: what a call is sent for it, and what it returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import add, attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from seqserve.results import SourceWarning, StopReason
from seqserve.words import has_words

if TYPE_CHECKING:
    from seqserve.arguments import GenerateOptions
    from seqserve.results import Hypothesis, Result

# A request takes 1 MiB, and a character has up to four bytes.
_MAX_CHARACTERS = 100_000
# A text has at most 4,096 segments. They end at these characters or are long.
_MAX_ENDS = 2000
_END = re.compile(r"[^\w\s]|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
# Where to divide what is more than that: after sentences, or else after words.
_SENTENCE = re.compile(r"[.!?…][^\w\s]{0,3}(?=\s)|[。！？]|[\n\r\u2028\u2029]")
_WORD = re.compile(r"\S(?=\s)")
# A model of bytes may have learnt a script that its vocabulary does not tell.
_UNREAD = {SourceWarning.UNKNOWN_CHARACTERS, SourceWarning.OTHER_SCRIPT}


class ParseError(ValueError):
    """A document is not in its format; no passage after that place can be read."""

    def __init__(self, line: int, reason: str) -> None:
        """``line`` counts from 1; ``reason`` is what is wrong there."""
        super().__init__(f"line {line} {reason}")


def fits(text: str) -> bool:
    """Returns whether a server answers a text in one call, whatever its sentences are."""
    if len(text) > _MAX_CHARACTERS:
        return False
    return len(text) <= _MAX_ENDS or len(_END.findall(text)) <= _MAX_ENDS


def parts(text: str) -> list[str]:
    """Divides a text that does not fit; the parts, joined, are the text."""
    if fits(text):
        return [text]
    half = len(text) // 2
    for border in (_SENTENCE, _WORD):
        if ends := [match.end() for match in border.finditer(text, half // 2, half + 1)]:
            half = min(ends[-1], half)
            break
    return parts(text[:half]) + parts(text[half:])


class Link(NamedTuple):
    """A token of a translation and its place in the source. Places count characters."""

    source_begin: int
    source_end: int
    target_begin: int
    target_end: int


_PLACES = attrgetter(*Link._fields)


class Translation(NamedTuple):
    """The translation of a passage."""

    text: str
    alignment: tuple[Link, ...] = ()
    """The source places of its tokens, in order; empty if they are unknown."""
    warnings: tuple[str, ...] = ()
    """Its probable faults, in words."""

    @property
    def fault(self) -> str:
        """Why its passage stays as it is; empty if it does not."""
        if not self.text:
            return "the model does not read its script, or has no answer"
        is_lost = not any(map(str.isalnum, self.text))
        return "its translation has no letter or digit" if is_lost else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text to translate, and what comes before it. All passages, joined, are the document."""

    line: int
    """Number of the line where it begins, from 1."""
    before: str = ""
    """Unchanged text between the previous passage and this one."""
    source: str = ""
    """The passage as the document has it; kept if it cannot be translated."""
    text: str = ""
    """The text of the passage; empty if it has none."""
    kept: tuple[str, ...] = ()
    """Parts of the text that the translation must have as they are."""
    copied: str = ""
    """Why it stays, on purpose: the name of its kind, such as code; empty if it is translated."""
    fault: str = ""
    """Why it cannot be translated; empty if it can. It stays, and a reader misses it."""
    written: Callable[[Translation], str] = attrgetter("text")
    """Writes a translation as the format wants it."""
    lost: Sequence[str] = ()
    """Texts of elements for which the translation, once it is written, had no word; they stay."""
    split_passages: Callable[[], Iterator[Passage]] | None = None
    """Divides it at its markup; None if it has none. Only with an alignment can the translation of
    a passage with markup be written."""

    @property
    def has_words(self) -> bool:
        """Whether there is something to translate; if not, the passage stays to the byte."""
        return has_words(self.text) and not self.copied

    def changed(
        self, change: Callable[[Iterator[Passage]], Iterator[Passage]], **fields: Any
    ) -> Passage:
        """Returns it with other fields; ``change`` makes its parts fit them, if it is divided."""
        divide = self.split_passages
        return replace(self, **fields, split_passages=divide and (lambda: change(divide())))


Lines: TypeAlias = Iterable[str]
"""The lines of a document, with their ends."""
Parser: TypeAlias = Callable[[Lines], Iterator[Passage]]
"""Reads the passages of a document of one format."""


def joined_passages(parts: Iterable[str | Passage]) -> Iterator[Passage]:
    """Yields the passages of a document, with their lines and what comes before them."""
    before, line = "", 1
    for part in parts:
        if isinstance(part, str):
            before += part
            continue
        before += part.before
        if not (part.text or part.copied or part.fault):
            before += part.source
            continue
        line += before.count("\n")
        yield replace(part, line=line, before=before)
        line += part.source.count("\n")
        before = ""
    yield Passage(line=line, before=before)


def source_of(passage: Passage) -> tuple[str, GenerateOptions]:
    """Returns the source of a passage, and the options that its markup needs."""
    options: GenerateOptions = {}
    if passage.split_passages:
        options["return_alignment"] = True
    if passage.kept:
        options["keep"] = list(passage.kept)
    return passage.text, options


def parts_of(passage: Passage) -> Iterator[Passage]:
    """Divides a passage whose markup cannot be placed; the parts, joined, are the passage."""
    before = passage.before
    for part in passage.split_passages() if passage.split_passages else ():
        yield replace(part, line=passage.line + part.line - 1, before=before + part.before)
        before = ""


def translation_of(result: Result) -> Translation:
    """Returns the translation of a result; no text if the model reads the script of no segment."""
    best = result.hypotheses[0]
    read = [each.source_warnings for each in result.segments if each.hypotheses]
    is_unread = all(_UNREAD.issubset(each) for each in read or [result.source_warnings])
    links = _links(best, 0, 0)
    for segment in result.segments:
        source, target = segment.source_begin, segment.target_begin
        if segment.hypotheses:
            links += _links(segment.hypotheses[0], source, target)
        else:
            # It is in the text as it is.
            places = range(segment.source_end - source)
            links += [Link(source + n, source + n + 1, target + n, target + n + 1) for n in places]
    if is_unread:
        return Translation("", tuple(links))
    return Translation(result.text, tuple(links), (*map(str, best.warnings), *ends_of(best)))


def ends_of(hypothesis: Hypothesis) -> list[str]:
    """Returns whether a text is cut short or garbled, in words."""
    faults = []
    if (reason := hypothesis.stop_reason) in (StopReason.LENGTH, StopReason.TIME_LIMIT):
        faults.append(f"cut short: {reason.value}")
    if "\N{REPLACEMENT CHARACTER}" in hypothesis.text:
        faults.append("garbled: some letters of the source")
    return faults


def _links(hypothesis: Hypothesis, source: int, target: int) -> list[Link]:
    offsets = source, source, target, target
    return [Link(*map(add, _PLACES(token), offsets)) for token in hypothesis.alignment]
