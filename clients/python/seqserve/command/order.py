"""Outcomes that come as they are ready, put back into the order of their sources.

Those that come before an elder are held back. How many is bounded, because sources are read only so
far ahead of the outcome that is waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Order(Generic[A]):
    """Stands before and behind what works on sources; a thread of its own may read them."""

    def __init__(self, sources: Iterable[A], most: int) -> None:
        """Keeps the settings.

        Args:
            sources: What is worked on.
            most: Sources that have been read while their outcome has not been given.
        """
        self._input = sources
        self._sources: dict[int, A] = {}
        self._room = threading.Semaphore(most)
        self._is_over = False

    def sources(self) -> Iterator[A]:
        """Gives the sources in turn, as soon as they may be read."""
        self._room.acquire()
        for number, source in enumerate(self._input):
            self._sources[number] = source
            yield source
            self._room.acquire()
            if self._is_over:
                return

    def restored(self, outcomes: Iterable[tuple[int, R]]) -> Generator[tuple[A, R], None, None]:
        """Gives each source and its outcome, in the order of the sources.

        Args:
            outcomes: The number of a source, from 0, and its outcome, in any order.
        """
        early: dict[int, R] = {}
        number = 0
        try:
            for place, outcome in outcomes:
                early[place] = outcome
                while number in early:
                    yield self._sources.pop(number), early.pop(number)
                    self._room.release()
                    number += 1
        finally:
            self._is_over = True
            self._room.release()
