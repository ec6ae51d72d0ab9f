"""Chooses among the candidates of many rows at once, as the decoder graph does among all tokens.

Each row's sum runs over its own candidates alone, in their order, so that no other row changes it,
not even by a rounding. Rows have different numbers of candidates, which lie one after the other.
"""

from __future__ import annotations

import numpy as np

from seqserve_server.engine.candidates import Layout
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

_LAST = np.iinfo(np.int64).max
"""Orders after every candidate."""


class Choice:
    """What R rows choose in one step."""

    def __init__(self, layout: Layout, logits: Array) -> None:
        """Finds the best candidate of each row; ``logits [N]`` are those of the candidates."""
        self.rows = layout.rows
        self._layout, self._logits = layout, logits
        self._peaks = np.maximum.reduceat(logits, layout.starts)  # [R]
        self._below = self._peaks.repeat(layout.sizes) - logits  # [N]
        # Put so that what is not a number has a best one too.
        found = (~(self._below > 0)).nonzero()[0]
        self.tokens: Array = layout.tokens[found[found.searchsorted(layout.starts)]]
        """The best token of each row, ``[R]``; among equals the first."""

    def candidates(self, row: int) -> tuple[Array, Array]:
        """Gives a row's candidates and their logits, ``[N]`` each."""
        mine = self._layout.of(row)
        return self._layout.tokens[mine], self._logits[mine]

    def log_totals(self) -> Array:
        """Sums each row's probabilities as shares of its best one; logarithms, ``[R]``.

        The negative is the log-probability of the best token.
        """
        shares = np.exp(-self._below)
        totals: Array = np.log(np.add.reduceat(shares, self._layout.starts))
        return totals

    def top(self, count: int, log_totals: Array, eos: int) -> tuple[Array, Array]:
        """Lists the best tokens of each row, best first; among equals the first.

        Returns:
            Tokens and log-probabilities, ``[R, count]`` each. A row with fewer candidates has
            suppressed end tokens after them.
        """
        places = self._top_places(count)
        is_missing = places < 0
        found = self._logits[places] - (self._peaks + log_totals)[:, None]
        return (
            np.where(is_missing, eos, self._layout.tokens[places]),
            np.where(is_missing, MASKED_LOGIT, found),
        )

    def _top_places(self, count: int) -> Array:
        """Finds the places of the best candidates, ``[R, count]``; -1 where a row has fewer."""
        layout = self._layout
        keys = np.full((len(layout.rows), max(int(layout.sizes.max()), count)), _LAST)
        within = np.arange(len(layout.tokens)) - layout.starts[layout.owners]
        keys[layout.owners, within] = _falling(self._logits) | within
        if count < keys.shape[1]:
            keys = np.partition(keys, count - 1, axis=1)[:, :count]
        keys.sort(axis=1)
        places: Array = layout.starts[:, None] + (keys & 0xFFFFFFFF)
        return np.where(keys == _LAST, -1, places)


def _falling(values: Array) -> Array:
    """Gives integers in the opposite order of float32 values, their lower 32 bits zero.

    Floats of one sign are in the order of their bits, or in the opposite one.
    """
    # Adding zero makes both zeros one.
    bits = (values + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    falling: Array = -rising.astype(np.int64) << 32
    return falling
