"""Greedy search over the running rows: keeps their words, says which are done and why.

Everything here is one array operation for all rows; rows are told apart only when they end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.request import DecodingOptions, Finished, StopReason

Array = NDArray[Any]

# Lower than any score, yet finite, so that a sum with it stays a number.
_NEVER = np.float32(-1e30)


class GreedySearch:
    """What was generated in each slot so far. Rows join and leave with those of the cache."""

    def __init__(self, cache: SlotCache, eos: int, max_target_length: int) -> None:
        """Allocates room for the longest target in every slot.

        Args:
            cache: Whose rows it reads.
            eos: Id of the end token.
            max_target_length: Most words, the end token not counted.
        """
        self._cache = cache
        self._eos = eos
        self._words = np.zeros((cache.slots, max_target_length + 1), np.int32)
        self._scores = np.zeros(cache.slots)
        self._asked = np.zeros(cache.slots, np.bool_)
        self._longest = np.zeros(cache.slots, np.int32)
        self._shortest = np.zeros(cache.slots, np.int32)
        self._rows = np.arange(cache.slots)
        self._any_held = False

    def join(self, row: int, options: DecodingOptions) -> None:
        """Starts a row."""
        self._scores[row] = 0.0
        self._asked[row] = options.return_scores
        self._longest[row] = options.max_decoding_length
        self._shortest[row] = options.min_decoding_length
        if options.min_decoding_length:
            self._cache.adjust_value[row] = _NEVER
            self._any_held = True

    def move(self, source: int, target: int) -> None:
        """Copies one row over another."""
        length = self._cache.lengths[source]
        self._words[target, :length] = self._words[source, :length]
        self._scores[target] = self._scores[source]
        self._asked[target] = self._asked[source]
        self._longest[target] = self._longest[source]
        self._shortest[target] = self._shortest[source]

    def advance(self, rows: int) -> list[int]:
        """Takes in the words of the step just run.

        Args:
            rows: How many leading rows ran.

        Returns:
            The rows that are done, in rising order.
        """
        words = self._cache.tokens[:rows, 0]
        lengths = self._cache.lengths[:rows]
        self._words[self._rows[:rows], lengths - 1] = words
        if self._cache.scored:
            self._scores[:rows] += self._cache.log_probabilities[:rows]
        if self._any_held:
            self._hold(lengths)
        done = (words == self._eos) | (lengths >= self._longest[:rows])
        return done.nonzero()[0].tolist()  # type: ignore[no-any-return]

    def _hold(self, lengths: Array) -> None:
        """Holds the end token back until the shortest length is reached."""
        held = lengths < self._shortest[: len(lengths)]
        self._cache.adjust_value[: len(lengths), 0] = np.where(held, _NEVER, 0.0)
        self._any_held = bool(held.any())

    def word(self, row: int) -> int:
        """Gives the newest word of a row."""
        return int(self._cache.tokens[row, 0])

    def is_end(self, row: int) -> bool:
        """Tells whether the newest word of a row is the end token."""
        return self.word(row) == self._eos

    def result(self, row: int) -> Finished:
        """Gives the answer of a row that is done."""
        ended = self.is_end(row)
        length = int(self._cache.lengths[row]) - ended
        return Finished(
            token_ids=self._words[row, :length].tolist(),
            score=float(self._scores[row]) if self._asked[row] else None,
            stop_reason=StopReason.EOS if ended else StopReason.LENGTH,
        )
