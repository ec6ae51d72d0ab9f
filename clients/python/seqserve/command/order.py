"""Restores the order of sources for outcomes that arrive in any order.

Early outcomes wait for the ones before them. Their number is bounded, because sources are read only
a limited distance ahead of the next outcome.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterable, Iterator
from typing import Generic, TypeVar

A = TypeVar("A")
R = TypeVar("R")


class Order(Generic[A]):
    """Hands out sources, perhaps to another thread, and pairs them with their outcomes."""

    def __init__(self, sources: Iterable[A], max_ahead: int) -> None:
        """Reads nothing yet; ``max_ahead`` sources may be read before their outcome is yielded."""
        self._input = sources
        self._sources: dict[int, A] = {}
        self._room = threading.Semaphore(max_ahead)
        self._is_over = False

    def sources(self) -> Iterator[A]:
        """Yields the sources, each as soon as there is room for it."""
        self._room.acquire()
        for index, source in enumerate(self._input):
            self._sources[index] = source
            yield source
            self._room.acquire()
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
                    self._room.release()
                    next_index += 1
        finally:
            self._is_over = True
            self._room.release()
