"""The words that running requests restrict themselves to, all in one list for a step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.scores import NEVER, Array

Words = tuple[int, ...]


class Vocabularies:
    """Those of all rows; steps give out the scores of each word in any of them."""

    def __init__(self, cache: SlotCache) -> None:
        """Begins with none.

        Args:
            cache: Whose steps are told.
        """
        self._cache = cache
        self._rows: Counter[Words] = Counter()
        # As arrays, and where each word is among all of them.
        self._arrays: dict[Words, tuple[Array, Array]] = {}

    def join(self, words: Words, rows: int = 1) -> None:
        """Adds rows; an empty vocabulary is that of rows that may say everything."""
        self._rows[words] += rows
        if self._rows[words] == rows:
            self._tell()

    def leave(self, words: Words) -> None:
        """Takes away a row."""
        self._rows[words] -= 1
        if not self._rows[words]:
            del self._rows[words]
            self._tell()

    def scores(self, row: int, words: Words) -> tuple[Array, Array]:
        """Gives a row's words and their scores in the last step, ``[N]`` each."""
        array, columns = self._arrays[words]
        found = self._cache.allowed_scores(row)[columns]
        if banned := self._cache.banned(row):
            found[np.isin(array, banned)] = NEVER
        return array, found

    def _tell(self) -> None:
        listed = [words for words in self._rows if words]
        every = np.unique(np.concatenate(listed)) if listed else np.empty(0, np.int64)
        arrays = {words: np.array(words) for words in listed}
        self._arrays = {
            words: (array, every.searchsorted(array)) for words, array in arrays.items()
        }
        self._cache.allow(every)
        self._cache.projects = () in self._rows or not listed
