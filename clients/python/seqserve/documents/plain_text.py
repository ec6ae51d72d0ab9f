"""Plain text: its encoding, and its passages: each line, or each paragraph."""

import codecs
import re
from collections.abc import Iterator
from functools import partial

from seqserve.documents.passage import Lines, Passage, joined_passages, parts
from seqserve.errors import OptionError
from seqserve.words import has_words

_TIME = r"\d+(?::\d\d)+(?:[.,]\d+)?"
# The times of a transcript.
_TIMES = re.compile(rf"\s*(?:\[{_TIME}(?:\s*-->\s*{_TIME})?\]|{_TIME}\s*-->\s*{_TIME})\s*")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each line that is not blank, without the times that it begins with."""
    return joined_passages(part for line in lines for part in _parts(line))


def _parts(line: str) -> Iterator[str | Passage]:
    body = line.rstrip("\r\n")
    times = _TIMES.match(body)
    begin = times.end() if times else 0
    yield body[:begin]
    for part in parts(body[begin:]):
        yield Passage(line=0, source=part, text=part) if part.strip() else part
    yield line[len(body) :]


def parse_paragraphs(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each paragraph: lines up to a blank one, joined by spaces."""
    return parse(_joined(lines))


def parse_lines(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for every line, blank ones too, as it is.

    A line may have bytes that could not be decoded, as lone surrogates; its passage has a fault.
    """
    for number, line in enumerate(lines, start=1):
        body = line.rstrip("\r\n")
        written = partial(lambda end, translation: translation.text + end, line[len(body) :])
        yield Passage(line=number, source=line, text=body, fault=fault_of(body), written=written)


def fault_of(text: str) -> str:
    """Returns why a line is not text (invalid UTF-8, a NUL character); empty if it is text."""
    if "\0" in text:
        return "has a NUL character, so it is not text"
    place = undecoded(text)
    return f"is not UTF-8: {place}; convert it" if place else ""


def undecoded(text: str) -> str:
    """Describes the first lone surrogate: half a character, or a byte that could not be decoded."""
    try:
        # Most lines are ASCII, and need no copy.
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        byte = ord(text[error.start]) - 0xDC00
        what = f"byte 0x{byte:02X}" if 0x80 <= byte <= 0xFF else "half a character"
        return f"{what} after {error.start} characters"
    return ""


def _joined(lines: Lines) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _TIMES.match(line):
            yield from _one_line(paragraph)
            paragraph = []
        if line.strip():
            paragraph.append(line)
        else:
            yield line
    yield from _one_line(paragraph)


def _one_line(paragraph: list[str]) -> Iterator[str]:
    if not has_words("".join(paragraph)):
        yield from paragraph
    else:
        *others, last = paragraph
        yield "".join(f"{line.rstrip()} " for line in others) + last


MARK = "\ufeff"
HEAD_BYTES = 4
"""Bytes at the beginning of a text that tell its encoding."""
# A mark of UTF-32 begins with one of UTF-16.
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
# A Latin letter or a line feed in each encoding.
_UNMARKED = {
    "utf-32-le": re.compile(rb"[^\0]\0\0\0"),
    "utf-32-be": re.compile(rb"\0\0\0[^\0]"),
    "utf-16-le": re.compile(rb"[^\0]\0"),
    "utf-16-be": re.compile(rb"\0[^\0]"),
}


def marked(head: bytes) -> str:
    """Returns the encoding whose byte order mark a text begins with; empty if it has none."""
    return next((encoding for mark, encoding in _MARKS.items() if head.startswith(mark)), "")


def unmarked(head: bytes) -> str:
    """Returns the encoding whose NUL characters a text begins with; empty if it has none."""
    return next((name for name, pattern in _UNMARKED.items() if pattern.match(head)), "")


def decoded(content: bytes, encoding: str = "utf-8") -> tuple[str, str, str]:
    """Decodes a whole text, which has this encoding unless a byte order mark tells otherwise.

    Returns:
        The text without its mark, the mark or nothing, and the encoding to write it back in.

    Raises:
        OptionError: It is not in that encoding, or has a NUL character, so it is not text.
    """
    told = marked(content)
    encoding = told or encoding
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        reason = f"is not {encoding}: {error.reason} at byte {error.start}; convert it to UTF-8"
        raise OptionError(reason) from None
    if "\0" in text:
        found = unmarked(content) if not told else ""
        reason = f"has NUL characters as {found} has them; convert it to UTF-8"
        raise OptionError(reason if found else "has a NUL character; the file is not text")
    mark = MARK if told else ""
    return text.removeprefix(mark), mark, encoding


def encoded(text: str, encoding: str, errors: str = "strict") -> bytes:
    """Encodes a translation, as ``str.encode``; OptionError if the encoding lacks a character."""
    try:
        return text.encode(encoding, errors)
    except UnicodeEncodeError as error:
        unknown = error.object[error.start]
        raise OptionError(f"its translation has {unknown!r}, not in {encoding}") from None
