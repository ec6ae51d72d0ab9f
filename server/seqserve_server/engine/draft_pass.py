"""Reads the tokens of a draft in one pass, and finds what greedy search writes after each."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.draft_reader import DraftReader

MAX_TOKENS = 32
"""Tokens of a pass, which then takes less than twice as long as to encode as many."""


class DraftPass:
    """Passes over single rows of a cache."""

    def __init__(self, reader: DraftReader, cache: SlotCache) -> None:
        """Takes the cache."""
        self._reader, self._cache = reader, cache

    def run(self, row: int, tokens: Sequence[int]) -> tuple[list[int], list[float]] | None:
        """Reads tokens in a row: it gets their keys and values, but is no longer than before.

        Args:
            row: A row that chooses among all tokens.
            tokens: Its newest token, and those that may come next; 2 to :data:`MAX_TOKENS`.

        Returns:
            The best next token after each of them, and its log-probability; zeros where the last
            step of the cache computed none. None while drafts are not read.
        """
        outputs = self._reader.read(self._cache.draft_inputs(row, tokens))
        if outputs is None:
            return None
        best, log_probabilities, *entries = outputs
        self._cache.write(row, entries)
        return best[:, 0].tolist(), log_probabilities.tolist() or [0.0] * len(tokens)
