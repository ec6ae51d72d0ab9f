"""The order of sources whose outcomes arrive in any order, and the numbers of some of them.

Early outcomes wait for the ones before them. Their number is bounded, because sources are read only
a limited distance ahead of the next outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")

_MAX_RANGES = 20


class InOrder(Generic[A]):
    """Hands out sources, perhaps to another thread, and pairs them with their outcomes."""

    def __init__(self, sources: Iterable[A], max_ahead: int) -> None:
        """Reads nothing yet; ``max_ahead`` sources may be read before their outcome is yielded."""
        self._input = sources
        self._sources: dict[int, A] = {}
        self._window = threading.Semaphore(max_ahead)
        self._is_over = False

    def sources(self) -> Iterator[A]:
        """Yields the sources, each as soon as the window has room for it."""
        self._window.acquire()
        for index, source in enumerate(self._input):
            self._sources[index] = source
            yield source
            self._window.acquire()
            if self._is_over:
                return

    def restored(self, outcomes: Iterable[tuple[int, R]]) -> Generator[tuple[A, R], None, None]:
        """Yields each source with its outcome, in order; outcomes come in any order."""
        early: dict[int, R] = {}
        next_index = 0
        try:
            for index, outcome in outcomes:
                early[index] = outcome
                while next_index in early:
                    yield self._sources.pop(next_index), early.pop(next_index)
                    self._window.release()
                    next_index += 1
        finally:
            self._is_over = True
            self._window.release()


class LineNumbers:
    """Counts line numbers, which come in order, and shows the first ones."""

    def __init__(self) -> None:
        """Starts empty."""
        self.count = 0
        self._ranges: list[tuple[int, int]] = []
        self._others = 0

    def add(self, number: int) -> None:
        """Adds a number, which is greater than the ones before."""
        self.count += 1
        if self._others or (len(self._ranges) == _MAX_RANGES and self._ranges[-1][1] < number - 1):
            self._others += 1
        elif self._ranges and self._ranges[-1][1] == number - 1:
            self._ranges[-1] = (self._ranges[-1][0], number)
        else:
            self._ranges.append((number, number))

    def __str__(self) -> str:
        """Shows ranges: ``2-3, 9``."""
        ranges = (str(a) if a == b else f"{a}-{b}" for a, b in self._ranges)
        return ", ".join(ranges) + (f" and {self._others} more" if self._others else "")
