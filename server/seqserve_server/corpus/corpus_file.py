"""A corpus in a file, whatever its format: its places, and how their answers are written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from seqserve_server.corpus.answer import Answer


class Place(NamedTuple):
    """One place of a corpus that gets an answer: a line, an object, a row."""

    text: str = ""
    """What to generate from; blank for nothing."""
    fault: str = ""
    """Why it cannot be answered; empty if it can."""


class CorpusFile(Protocol):
    """A file that can be read more than once, always with the same content."""

    unit: str
    """What a place is called, in the plural."""

    def count(self) -> int:
        """Counts the places."""

    def places(self) -> Iterator[Place]:
        """Yields the places, in order.

        Raises:
            OptionError: The file cannot be read.
        """

    def write(self, out: Path, answers: Iterable[Answer]) -> None:
        """Writes the whole corpus with its answers, of which there is one for each place.

        Raises:
            OptionError: The file cannot be read, or no other one be written.
            NotWritten: A write failed, as on a full disk.
        """
