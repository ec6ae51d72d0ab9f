"""Greedy search, for all rows that want nothing else: the graph has chosen already."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.request import DecodingOptions, Finished, Hypothesis, StopReason
from seqserve_server.engine.scores import normalized

Array = NDArray[Any]


class GreedyRows:
    """What was generated in each row so far, as arrays over all of them.

    Rows that search otherwise are passed over: they are never done here.
    """

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
        self._mine = np.zeros(cache.slots, np.bool_)
        self._longest = np.zeros(cache.slots, np.int32)
        self._shortest = np.zeros(cache.slots, np.int32)
        self._penalty = np.ones(cache.slots)
        self._rows = np.arange(cache.slots)
        self._held: set[int] = set()

    def join(self, row: int, options: DecodingOptions) -> None:
        """Starts a row."""
        self._mine[row] = True
        self._scores[row] = 0.0
        self._asked[row] = options.return_scores
        self._longest[row] = options.max_decoding_length
        self._shortest[row] = options.min_decoding_length
        self._penalty[row] = options.length_penalty
        if options.min_decoding_length:
            self._cache.ban(row, [self._eos])
            self._held.add(row)

    def leave(self, row: int) -> None:
        """Forgets a row."""
        self._mine[row] = False
        self._held.discard(row)

    def move(self, source: int, target: int) -> None:
        """Brings one row to the place of another, which has left."""
        length = self._cache.lengths[source]
        self._words[target, :length] = self._words[source, :length]
        for array in (
            self._mine,
            self._scores,
            self._asked,
            self._longest,
            self._shortest,
            self._penalty,
        ):
            array[target] = array[source]
        if source in self._held:
            self._held.add(target)
        self.leave(source)

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
        if self._held:
            self._release(lengths)
        done = ((words == self._eos) | (lengths >= self._longest[:rows])) & self._mine[:rows]
        return done.nonzero()[0].tolist()  # type: ignore[no-any-return]

    def _release(self, lengths: Array) -> None:
        """Lets rows end that have reached their shortest length."""
        for row in [row for row in self._held if lengths[row] >= self._shortest[row]]:
            self._held.remove(row)
            self._cache.unban(row)

    def result(self, row: int) -> Finished:
        """Gives the answer of a row that is done."""
        read = int(self._cache.lengths[row])
        ended = int(self._cache.tokens[row, 0]) == self._eos
        score = float(self._scores[row]) if self._asked[row] else None
        hypothesis = Hypothesis(
            token_ids=self._words[row, : read - ended].tolist(),
            score=score,
            stop_reason=StopReason.EOS if ended else StopReason.LENGTH,
            normalized_score=normalized(score, read, float(self._penalty[row])),
        )
        return Finished([hypothesis])
