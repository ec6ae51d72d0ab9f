"""Rows that choose among some tokens only, their candidates: which, and what a step computes.

A step projects each row onto its own tokens only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT


class Layout(NamedTuple):
    """The candidates of R rows, a line each, N of the row that has the most."""

    rows: Array
    """Which rows, rising, ``[R]``."""
    sizes: Array
    """How many each row has, ``[R]``."""
    is_real: Array
    """Whether there is a candidate; not so at the end of most lines, ``[R, N]``."""
    tokens: Array
    """Candidates, rising within each row, ``[R, N]``."""
    flat: Array
    """The real ones, line after line."""

    @classmethod
    def of(cls, candidates: Mapping[int, Array]) -> Layout:
        """Lays out the candidates of some rows."""
        rows = sorted(candidates)
        sizes = np.array([len(candidates[row]) for row in rows])
        is_real = np.arange(sizes.max()) < sizes[:, None]
        tokens = np.zeros(is_real.shape, np.int64)
        flat = tokens[is_real] = np.concatenate([candidates[row] for row in rows])
        return cls(np.array(rows), sizes, is_real, tokens, flat)

    def line(self, row: int) -> int:
        """Finds the line of a row."""
        return int(self.rows.searchsorted(row))

    def places(self, tokens_of_rows: Mapping[int, Sequence[int]]) -> Array:
        """Finds the places of tokens that are candidates of their row among all lines, ``[M]``."""
        keys = [
            (line << 32) + token
            for line, row in enumerate(self.rows.tolist())
            for token in tokens_of_rows.get(row, ())
        ]
        if not keys:
            return np.empty(0, np.int64)
        # All lines are one rising series with their numbers in the upper bits.
        series = self.flat + (np.arange(len(self.rows)) << 32).repeat(self.sizes)
        indices = np.minimum(series.searchsorted(keys), len(series) - 1)
        indices = indices[series[indices] == keys]
        lines = series[indices] >> 32
        begins = self.sizes.cumsum() - self.sizes
        places: Array = lines * self.tokens.shape[1] + indices - begins[lines]
        return places


class Candidates:
    """The candidates of each row that does not choose among all tokens."""

    def __init__(self) -> None:
        self._by_row: dict[int, Array] = {}
        self._layout: Layout | None = None

    def __len__(self) -> int:
        return len(self._by_row)

    def of(self, row: int) -> Array | None:
        """Returns the candidates of a row; None where it chooses among all tokens."""
        return self._by_row.get(row)

    def put(self, row: int, tokens: Array | None) -> None:
        """Sets the candidates ``[N]`` of a row, rising; None lets it choose among all tokens."""
        before = self._by_row.pop(row, None)
        if tokens is not None:
            self._by_row[row] = tokens
        if before is not None or tokens is not None:
            self._layout = None

    def layout(self) -> Layout | None:
        """Lays out the candidates of all rows; the same object until they change."""
        if self._layout is None and self._by_row:
            self._layout = Layout.of(self._by_row)
        return self._layout

    def sets(self) -> tuple[list[Array], list[list[int]]]:
        """Lists the sets of candidates, and the rows of each, rising."""
        rows_of: dict[int, list[int]] = {}
        for row in sorted(self._by_row):
            rows_of.setdefault(id(self._by_row[row]), []).append(row)
        return [self._by_row[rows[0]] for rows in rows_of.values()], list(rows_of.values())


_LAST = np.iinfo(np.int64).max
"""Orders after every candidate."""


class Choice:
    """The choices of R rows in one step."""

    def __init__(self, layout: Layout, logits: Array) -> None:
        """Finds the best of the logits ``[R, N]``, minus infinity beyond the candidates."""
        self.rows = layout.rows
        self._layout, self._logits = layout, logits
        best = logits.argmax(axis=1)
        # The first of each line by its place; to take them by two indices needs twice the time.
        places = best + np.arange(0, logits.size, logits.shape[1])
        self.tokens: Array = layout.tokens.reshape(-1).take(places)
        """The best token of each row, ``[R]``; among equals the first."""
        self._peaks = logits.reshape(-1).take(places)  # [R]

    def candidates(self, row: int) -> tuple[Array, Array]:
        """Returns a row's candidates and their logits, ``[N]`` each."""
        line = self._layout.line(row)
        mine = slice(int(self._layout.sizes[line]))
        return self._layout.tokens[line, mine], self._logits[line, mine]

    def log_totals(self) -> Array:
        """Sums each row's probabilities as shares of its best one; logarithms, ``[R]``."""
        shares = np.exp(self._logits - self._peaks[:, None])
        sizes = self._layout.sizes
        # One after the other: how a line is added up depends on its length, with zeros too.
        flat = shares[self._layout.is_real]
        totals: Array = np.log(np.add.reduceat(flat, sizes.cumsum() - sizes))
        return totals

    def top(self, count: int, log_totals: Array, eos: int) -> tuple[Array, Array]:
        """Lists the best tokens of each row and their log-probabilities, ``[R, count]``.

        Among equals the first comes first. Suppressed end tokens fill a row with fewer candidates.
        """
        columns = self._top_columns(count)
        is_missing = columns < 0
        lines = np.arange(len(columns))[:, None]
        log_probabilities = self._logits[lines, columns] - (self._peaks + log_totals)[:, None]
        return (
            np.where(is_missing, eos, self._layout.tokens[lines, columns]),
            np.where(is_missing, MASKED_LOGIT, log_probabilities),
        )

    def _top_columns(self, count: int) -> Array:
        """Finds the columns of the best candidates, ``[R, count]``; -1 where a row has fewer."""
        rows, longest = self._logits.shape
        keys = np.full((rows, max(longest, count)), _LAST)
        ranked = _falling(self._logits) | np.arange(longest)
        keys[:, :longest] = np.where(self._layout.is_real, ranked, _LAST)
        if count < keys.shape[1]:
            keys = np.partition(keys, count - 1, axis=1)[:, :count]
        keys.sort(axis=1)
        return np.where(keys == _LAST, -1, keys & 0xFFFFFFFF)


def _falling(values: Array) -> Array:
    """Returns integers in the opposite order of float32 values, their lower 32 bits zero."""
    # Adding zero makes both zeros one.
    bits = (values + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    falling: Array = -rising.astype(np.int64) << 32
    return falling
