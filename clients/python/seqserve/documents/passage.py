"""A part of a document that is translated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


class Link(NamedTuple):
    """A token of a translation and where it comes from. Places count characters."""

    source_begin: int
    source_end: int
    target_begin: int
    target_end: int


class Translation(NamedTuple):
    """The translation of a passage."""

    text: str
    alignment: tuple[Link, ...] = ()
    """Where its tokens come from, in order; empty if nothing is known of that."""


def _text(translation: Translation) -> str:
    return translation.text


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
    written: Callable[[Translation], str] = _text
    """Writes a translation as the format wants it."""
    divided: Callable[[], Iterator[Passage]] | None = None
    """Divides it at its markup; None if it has none. Only with an alignment can the translation of
    a passage with markup be written."""


Lines: TypeAlias = Iterable[str]
"""The lines of a document, with their ends."""
Parser: TypeAlias = Callable[[Lines], Iterator[Passage]]
"""Reads the passages of a document of one format."""
