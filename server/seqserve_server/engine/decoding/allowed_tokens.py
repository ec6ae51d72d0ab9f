"""The words that running requests restrict themselves to, all in one list for a step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.packing import Array

Words = tuple[int, ...]

# Gathering more than this part of the weight costs more than all of it, which is packed.
_MOST_GATHERED = 1 / 4


class Vocabularies:
    """Word lists that running rows are restricted to; a step gives scores for their union."""

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
        cache = self._cache
        scores = cache.scores(row) if cache.shows_listed else cache.allowed_scores(row)
        found = scores[columns]
        if banned := cache.banned(row):
            found[np.isin(array, banned)] = MASKED_LOGIT
        return array, found

    def _tell(self) -> None:
        listed = [words for words in self._rows if words]
        every = np.unique(np.concatenate(listed)) if listed else np.empty(0, np.int64)
        are_many = len(every) > _MOST_GATHERED * self._cache.vocabulary_size
        arrays = {words: np.array(words) for words in listed}
        self._arrays = {
            words: (array, array if are_many else every.searchsorted(array))
            for words, array in arrays.items()
        }
        self._cache.allow([] if are_many else every)
        self._cache.shows_listed = are_many
        self._cache.projects = () in self._rows or not listed or are_many
