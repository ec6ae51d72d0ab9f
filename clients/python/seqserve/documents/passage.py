"""A part of a document that is translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias


def _same(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A text to translate, and what stands before it. All passages, joined, are the document."""

    line: int
    """Number of the line where it begins, from 1."""
    before: str = ""
    """What stays as it is, between the passage before and this one."""
    source: str = ""
    """The passage as the document has it; kept if it cannot be translated."""
    text: str = ""
    """The text to translate; empty if there is nothing."""
    fault: str = ""
    """Why it cannot be translated; empty if it can."""
    written: Callable[[str], str] = _same
    """Writes a translation as the format wants it."""


Lines: TypeAlias = Iterable[str]
"""The lines of a document, with their ends."""
Parser: TypeAlias = Callable[[Lines], Iterator[Passage]]
