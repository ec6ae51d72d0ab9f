"""Subtitles, SRT and WebVTT: what is spoken in a cue is a passage; tags follow its words.

A cue is a line of times and the lines up to the next one, or to its number. Sources: WebVTT,
https://www.w3.org/TR/webvtt1/, section 4; SRT has the same cues under numbers.
"""

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from itertools import chain, groupby

from seqserve.documents.inline import Kind, Piece, passages
from seqserve.documents.passage import Lines, Passage, Translation, joined_passages
from seqserve.documents.syntax import Syntax

_TIMES = re.compile(r"\s*[\d:.,]+\s*-->\s*[\d:.,]+")
_NUMBER = re.compile(r"\s*\d+\s*$")
# Blocks of WebVTT that are not cues.
_NOTE = re.compile(r"(?:NOTE|STYLE|REGION)(?!\S)")
_TAG = r"</?\w[^<>]*>"
# Tags, and what SRT writes in braces; the dash or >> of a speaker comes before or within them.
_MARKUP = re.compile(rf"{_TAG}|\{{[^{{}}]*\}}")
_DASH = re.compile(rf"((?:\s|\\[Nnh]|{_TAG})*)((?:[-–]|(?:>|&gt;){{2,}}+)\s*)")
# A line that is a sound or a song.
_SOUND = re.compile(rf"(?:\s|{_TAG})*(?:\[[^]]+\]|\([^)]+\)|[♪♫].+[♪♫])(?:\s|{_TAG})*")
# Other programs' breaks within a line, and spaces that do not break.
_BREAK = re.compile(r"\\[Nnh]")
_LINE_END = re.compile(r"\r\n|\r|\n|\\[Nn]")
# Times within a cue of WebVTT, which grow.
_TIME = re.compile(r"<[\d:.]+>")
_WORD = re.compile(rf"(?:{_TAG}|\{{[^{{}}]*\}}|\S)+")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each speech of a cue; a translation has as many lines as its source.

    Blank lines divide the text of a cue, which goes on up to the next one.
    """
    rows = list(lines)
    is_web = bool(rows) and rows[0].startswith("WEBVTT")
    return joined_passages(_parts(rows, is_web))


def _parts(rows: list[str], is_web: bool) -> Iterator[str | Passage]:
    for is_text, run in groupby(zip(rows, _spoken(rows, is_web), strict=True), lambda row: row[1]):
        cue = [line for line, _ in run]
        if is_text:
            for speech in _speeches(cue):
                yield from _passages(speech, _WEB if is_web else _PLAIN)
        else:
            yield "".join(cue)


def _spoken(rows: list[str], is_web: bool) -> Iterator[bool]:
    is_cue, is_note, was_blank = False, False, True
    for line, following in zip(rows, [*rows[1:], ""], strict=False):
        is_blank = not line.strip()
        is_times = bool(_TIMES.match(line))
        # A number may lack the blank line before it; a name of WebVTT may be any text.
        is_name = bool(_TIMES.match(following)) and (was_blank or bool(_NUMBER.match(line)))
        is_note = not is_blank and (is_note or (is_web and was_blank and bool(_NOTE.match(line))))
        is_cue = is_cue or is_times
        yield is_cue and not (is_blank or is_times or is_name or is_note)
        was_blank = is_blank


def _speeches(cue: list[str]) -> Iterator[list[str]]:
    speech: list[str] = []
    for line in cue:
        is_sound = speech and any(map(_SOUND.fullmatch, (speech[-1], line)))
        if is_sound or (speech and _DASH.match(line)):
            yield speech
            speech = []
        speech.append(line)
    yield speech


def _passages(speech: list[str], syntax: Syntax) -> Iterator[Passage]:
    text = "".join(speech)
    pieces: list[Piece] = []
    begin = 0
    if dash := _DASH.match(text):
        pieces += [*_pieces(dash[1]), Piece(Kind.BREAK, dash[2])]
        begin = dash.end()
    yield from _in_lines(passages([*pieces, *_pieces(text[begin:])], syntax))


def _pieces(text: str) -> Iterator[Piece]:
    end = 0
    for markup in _MARKUP.finditer(text):
        yield Piece(Kind.TEXT, text[end : markup.start()])
        yield _tag(markup[0])
        end = markup.end()
    yield Piece(Kind.TEXT, text[end:])


def _tag(markup: str) -> Piece:
    name = re.match(r"</?([^\W\d]\w*)", markup)
    if name is None:
        # A time within a cue of WebVTT, or a place in braces.
        return Piece(Kind.EMPTY, markup)
    kind = Kind.CLOSING if markup.startswith("</") else Kind.OPENING
    return Piece(kind, markup, name[1].lower())


def _in_lines(parts: Iterator[Passage]) -> Iterator[Passage]:
    for part in parts:
        ends = _LINE_END.findall(part.source)
        if ends or len(_TIME.findall(part.source)) > 1:
            part = part.changed(_in_lines, written=partial(_wrapped, part, ends))
        yield part


def _wrapped(part: Passage, ends: list[str], translation: Translation) -> str:
    times, lines = iter(_TIME.findall(part.source)), len(ends) + 1
    text = _TIME.sub(lambda _: next(times, ""), part.written(translation))
    words: list[str] = []
    for word in _WORD.findall(text):
        if words and _DASH.match(word):
            # At the beginning of a line it would be another speaker's.
            words[-1] += f" {word}"
        else:
            words.append(word)
    sizes = [len(_MARKUP.sub("", word)) for word in words]
    widths = range(sum(sizes) // lines, sum(sizes) + len(sizes))
    # The least width at which they fit.
    at = bisect_left(widths, True, key=lambda width: len(_filled(words, sizes, width)) <= lines)
    if at == len(widths) or not ends:
        return text
    wrapped = _filled(words, sizes, widths[at])
    return "".join(chain(*zip(["", *ends], wrapped, strict=False)))


def _filled(words: list[str], sizes: list[int], width: int) -> list[str]:
    lines: list[str] = []
    room = -1
    for word, size in zip(words, sizes, strict=True):
        if room < size + 1:
            lines.append(word)
            room = width - size
        else:
            lines[-1] += f" {word}"
            room -= size + 1
    return lines


_PLAIN = Syntax(read=partial(_BREAK.sub, "\n"), write=str)
_WEB = Syntax(read=html.unescape, write=partial(html.escape, quote=False))
