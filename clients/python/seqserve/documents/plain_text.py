"""Plain text: each line is a passage, or each paragraph."""

from __future__ import annotations

import re
from collections.abc import Iterator

from seqserve.documents.passage import Lines, Passage

# A request takes 1 MiB, and a character has up to four bytes.
_MAX_CHARACTERS = 100_000
_PART = re.compile(rf"(?s).{{1,{_MAX_CHARACTERS}}}(?=\s|\Z)|.{{1,{_MAX_CHARACTERS}}}")


def parse(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each line that is not blank."""
    before = ""
    number = 0
    for number, line in enumerate(lines, start=1):
        body = line.rstrip("\r\n")
        # Far too long a line is divided at white space.
        for part in _PART.findall(body):
            if part.strip():
                yield Passage(line=number, before=before, source=part, text=part)
                before = ""
            else:
                before += part
        before += line[len(body) :]
    yield Passage(line=number, before=before)


def parse_paragraphs(lines: Lines) -> Iterator[Passage]:
    """Yields a passage for each paragraph: lines up to a blank one, joined by spaces."""
    return parse(_joined(lines))


def _joined(lines: Lines) -> Iterator[str]:
    paragraph: list[str] = []
    for line in lines:
        if line.strip():
            paragraph.append(line)
        else:
            yield from _one_line(paragraph)
            yield line
            paragraph = []
    yield from _one_line(paragraph)


def _one_line(paragraph: list[str]) -> Iterator[str]:
    if paragraph:
        *others, last = paragraph
        yield "".join(f"{line.rstrip()} " for line in others) + last
