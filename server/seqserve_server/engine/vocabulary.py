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
        self._columns: dict[Words, Array] = {}

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

    def scores(self, row: int, words: Words) -> Array:
        """Gives the scores of a row's words in the last step, ``[N]``."""
        found = self._cache.allowed_scores(row)[self._columns[words]]
        banned = np.isin(words, self._cache.banned(row))
        return np.where(banned, NEVER, found)

    def _tell(self) -> None:
        listed = [words for words in self._rows if words]
        every = np.unique(np.concatenate(listed)) if listed else np.empty(0, np.int64)
        self._columns = {words: every.searchsorted(words) for words in listed}
        self._cache.allow(every)
        self._cache.projects = () in self._rows or not listed
