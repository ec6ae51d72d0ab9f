"""How a format writes text: its escapes and placeholders, and what they mean."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from seqserve.documents.passage import parts

_NOT_IN_ADDRESS = r"\s<>()\[\]`*|\\"
_PARENTHESES = rf"\([^{_NOT_IN_ADDRESS}]*\)"
ADDRESS = (
    rf"(?<!\w)(?:(?:https?|ftp)://|www\.)(?:[^{_NOT_IN_ADDRESS}]|{_PARENTHESES})*"
    rf"(?:[^{_NOT_IN_ADDRESS}.,;:!?'\"_~]|{_PARENTHESES})"
    r"|(?<![\w.+-])[\w.+-]+@\w[\w-]*(?:\.\w[\w-]*)+"
)
"""Addresses of pages and of mail, as a pattern."""
# Sources: printf of C (ISO 9899, 7.21.6.1), with the positions of POSIX and the names of Python;
# str.format; i18next; ICU; Qt; Ruby; Symfony; Chrome's messages.json; references of HTML.
PLACEHOLDER = "|".join(
    [
        ADDRESS,
        r"\{{2,3}[^{}]*\}{2,3}",
        r"[$%#]?\{[^{}]*\}",
        r"\$t\([^()]*\)",
        r"\$\w+\$",
        r"%(?:\d+\$)?#@\w+@",
        r"%[A-Za-z_][\w.]{2,}%(?![\w%])",
        r"%(?:\d+\$|\([^()\s]+\))?[-+0#']*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|ll|[hljztLq])?[@A-Za-z]",
        r"%L?\d{1,2}|%%",
        r"&(?:#\d+|#[xX][\da-fA-F]+|[A-Za-z]\w+);",
    ]
)
"""Placeholders of programs and addresses, as a pattern without groups."""


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
