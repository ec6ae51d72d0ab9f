"""Subtitles, SRT and WebVTT: the text of each cue is a passage.

A cue is a line of times and the lines after it, up to a blank one. Sources: WebVTT,
https://www.w3.org/TR/webvtt1/, section 4; SRT has the same cues under numbers.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from functools import partial

from seqserve.documents.passage import Lines, Passage, Translation

_TIMES = re.compile(r"\s*[\d:.,]+\s*-->\s*[\d:.,]+")
# Tags and what WebVTT and SRT write in braces keep their places: text between them is a passage.
_MARKUP = re.compile(r"<[^>]*>|\{[^}]*\}")
_RUN = re.compile(r"[^\0]*[^\0\s][^\0]*")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for the text of each cue; a translation has as many lines as its source."""
    before = ""
    cue: list[str] = []
    is_cue = False
    number = 0
    for number, line in enumerate(lines, start=1):
        if is_cue and line.strip():
            cue.append(line)
            continue
        if cue:
            yield from _passages(cue, number - len(cue), before)
            before, cue = _end(cue[-1]), []
        before += line
        is_cue = bool(_TIMES.match(line))
    if cue:
        yield from _passages(cue, number + 1 - len(cue), before)
        before = _end(cue[-1])
    yield Passage(line=number, before=before)


def _passages(cue: list[str], number: int, before: str) -> Iterator[Passage]:
    text = "".join(cue)
    text = text[: len(text) - len(_end(text))]
    is_dialogue = all(line.lstrip().startswith(("-", "–")) for line in cue)
    if len(cue) > 1 and not is_dialogue and not _MARKUP.search(text):
        written = partial(_wrapped, lines=len(cue), end=_end(cue[0]))
        joined = " ".join(line.strip() for line in cue)
        yield Passage(line=number, before=before, source=text, text=joined, written=written)
        return
    begin = 0
    for run in re.finditer(r"[^\r\n]+", text):
        for part in _texts(run[0]):
            place = run.start() + part.start()
            before += text[begin:place]
            yield Passage(line=number, before=before, source=part[0], text=part[0])
            before, begin = "", place + len(part[0])
    if rest := before + text[begin:]:
        yield Passage(line=number, before=rest)


def _texts(line: str) -> Iterator[re.Match[str]]:
    """Finds what is neither markup nor the dash of a speaker."""
    # In place of markup as many characters, so that places stay.
    plain = _MARKUP.sub(lambda markup: "\0" * len(markup[0]), line)
    dash = re.match(r"\s*[-–]\s*", plain)
    return _RUN.finditer(plain, dash.end() if dash else 0)


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _wrapped(translation: Translation, lines: int, end: str) -> str:
    """Divides a translation into so many lines, as even as they can be."""
    text = translation.text
    words = text.split()
    for width in range(max(1, len(text) // lines), len(text) + 1):
        wrapped = textwrap.wrap(" ".join(words), width, break_long_words=False)
        if len(wrapped) <= lines:
            return end.join(wrapped)
    return text
