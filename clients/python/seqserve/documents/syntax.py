"""How a format writes text: its escapes and placeholders, and what they mean."""

import re
from collections.abc import Callable, Mapping
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
    has_menus: bool = False
    """Whether links that no sentence joins are separate texts."""

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


UNICODE = r"\\[uU][dD][89abAB][\da-fA-F]{2}\\[uU][dD][c-fC-F][\da-fA-F]{2}|\\[uU][\da-fA-F]{4}"
"""Characters by their codes in UTF-16, as a pattern: some have two."""
IN_C = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
"""Characters by their letters after a backslash in C."""


def backslashes(
    escape: re.Pattern[str],
    special: re.Pattern[str],
    letters: Mapping[str, str],
    written: Mapping[str, str],
    other: Callable[[str], str] = str,
) -> Syntax:
    """Returns the syntax of texts with backslashes.

    Args:
        escape: Matches a backslash and a character, digits of base 8, x and digits of 16, or a line
            end and what follows it; or as :data:`UNICODE`.
        special: Matches characters that get a backslash. letters: Characters by their escapes;
        other characters escape themselves. written: Replacements of characters that differ from a
        backslash and the character.
        other: Reads what ``escape`` matches without a backslash.
    """

    def character(match: re.Match[str]) -> str:
        code = match[0][1:]
        if match[0][0] != "\\":
            return other(match[0])
        if len(code) == 1 or code[0] in "\r\n":
            return letters.get(code[0], code)
        if code[0] in "uU":
            return bytes.fromhex(re.sub(r"\\[uU]", "", match[0])).decode("utf-16-be", "replace")
        return chr(int(code, 8) if code.isdigit() else int(code[1:], 16))

    def write(text: str) -> str:
        return special.sub(lambda match: written.get(match[0], f"\\{match[0]}"), text)

    return Syntax(lambda raw: escape.sub(character, raw), write, escape, keeps_space=True)


def enclosed(begin: str, marks: str, end: str, line_end: str = r"\n") -> str:
    """Returns a pattern, in linear time, from ``begin`` to the last mark and ``end``: few marks.

    It ends within its line, unless ``line_end`` is empty.
    """
    others = rf"[^{line_end}{marks}]{{0,500}}+"
    return rf"{begin}{others}(?:[{marks}](?!{end}){others}){{0,8}}+{re.escape(marks[-1])}{end}"


TEMPLATES = (r"\{\{", "{}", r"\}"), (r"\{%", "%", r"\}")
SHORTCODE = "|".join(enclosed(*each) for each in TEMPLATES)
"""Expressions and statements of templates, as a pattern: ``{{ name }}``, ``{% if a %}``."""


class SourceText:
    """A text, and how the document writes each part."""

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
