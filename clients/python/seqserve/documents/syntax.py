"""How a format writes text: its escapes and placeholders, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from seqserve.documents.passage import parts


class Syntax(NamedTuple):
    """How a format writes text."""

    read: Callable[[str], str]
    """Turns what the document has into text."""
    write: Callable[[str], str]
    """Turns text into what the document has."""
    escape: re.Pattern[str] | None = None
    """Matches what does not mean itself; a text is never divided within it."""
    keeps_space: bool = False
    """Whether white space within a text means something."""

    def parts(self, raw: str) -> list[str]:
        """Divides what the document has if the text is too long for a call."""
        if self.escape is None:
            return parts(raw)
        text = SourceText(raw, self)
        begin, divided = 0, []
        for part in parts(text.text):
            divided.append(text.raw(begin, begin + len(part)))
            begin += len(part)
        return divided


class SourceText:
    """A text, and how the document writes each part of it."""

    def __init__(self, raw: str, syntax: Syntax) -> None:
        """Reads a text whose syntax has escapes."""
        texts: list[str] = []
        # Where the document writes each character. The first one of an escape represents it.
        places: list[int] = []
        end = 0
        for escape in syntax.escape.finditer(raw) if syntax.escape else ():
            texts += [raw[end : escape.start()], syntax.read(escape[0])]
            places += range(end, escape.start())
            end = escape.end()
            places += [escape.start(), *[end] * len(texts[-1])][: len(texts[-1])]
        texts.append(raw[end:])
        places += range(end, len(raw))
        self.text = "".join(texts)
        """What it says."""
        self._raw = raw
        self._places = [0, *places[1:], len(raw)] if places else [len(raw)]

    def raw(self, begin: int, end: int) -> str:
        """Returns how the document writes the characters of a part."""
        first = self._places[begin] if begin else 0
        return self._raw[first : self._places[end]]
