"""The tokens that rows choose from, where they are not all, and where a step puts their logits.

A step projects all rows onto the union of these tokens, and each row reads the logits of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.packing import Array

# Gathering more than this part of the output weight costs more than all of it, which is packed.
_MAX_GATHERED = 1 / 4


class Layout(NamedTuple):
    """The candidates of R rows, those of the first row, then those of the second, and so on: N."""

    rows: Array
    """Which rows, rising, ``[R]``."""
    tokens: Array
    """Candidates, rising within each row, ``[N]``."""
    starts: Array
    """Where those of each row begin, ``[R]``."""
    sizes: Array
    """How many each row has, ``[R]``."""
    owners: Array
    """Index of the row of each candidate, ``[N]``."""
    columns: Array
    """Column of each candidate in the step's logits, ``[N]``."""
    union: Array
    """Token of each column, ``[U]``; empty where the step computes all logits."""

    def of(self, row: int) -> slice:
        """Finds the candidates of a row."""
        index = int(self.rows.searchsorted(row))
        start = int(self.starts[index])
        return slice(start, start + int(self.sizes[index]))

    def places(self, tokens_of_rows: Mapping[int, Sequence[int]]) -> Array:
        """Finds some tokens of some rows among the candidates, ``[M]``; others are left out."""
        found = [np.empty(0, np.int64)]
        for row in tokens_of_rows.keys() & set(self.rows.tolist()):
            mine, wanted = self.of(row), tokens_of_rows[row]
            places = mine.start + self.tokens[mine].searchsorted(wanted)
            places = np.minimum(places, mine.stop - 1)
            found.append(places[self.tokens[places] == wanted])
        return np.concatenate(found)


class Candidates:
    """The candidates of each row that does not choose among all tokens."""

    def __init__(self, vocabulary_size: int) -> None:
        """Starts with no such row."""
        self._of: dict[int, Array] = {}
        # How many rows have each token, and the column of those that some row has.
        self._uses = np.zeros(vocabulary_size, np.int32)
        self._columns = np.zeros(vocabulary_size, np.int64)
        self._layout: Layout | None = None

    def __len__(self) -> int:
        """Counts the rows."""
        return len(self._of)

    def of(self, row: int) -> Array | None:
        """Gives the candidates of a row; None where it chooses among all tokens."""
        return self._of.get(row)

    def put(self, row: int, tokens: Array | None) -> None:
        """Sets the candidates of a row; None lets it choose among all tokens.

        Args:
            row: The row.
            tokens: Token ids ``[N]``, rising, at least one.
        """
        before = self._of.pop(row, None)
        if before is not None:
            self._uses[before] -= 1
        if tokens is not None:
            self._uses[tokens] += 1
            self._of[row] = tokens
        if before is not None or tokens is not None:
            self._layout = None

    def layout(self) -> Layout | None:
        """Lays out the candidates of all rows; None where there is no row.

        The result is the same object until a row's candidates change.
        """
        if self._layout is None and self._of:
            self._layout = self._laid_out()
        return self._layout

    def _laid_out(self) -> Layout:
        rows = sorted(self._of)
        sizes = np.array([len(self._of[row]) for row in rows])
        starts = sizes.cumsum() - sizes
        tokens = np.concatenate([self._of[row] for row in rows])
        owners = np.arange(len(rows)).repeat(sizes)
        # Of booleans it finds them five times as fast as of numbers.
        union = (self._uses > 0).nonzero()[0]
        if len(union) > _MAX_GATHERED * len(self._uses):
            columns, union = tokens, union[:0]
        else:
            self._columns[union] = np.arange(len(union))
            columns = self._columns[tokens]
        return Layout(np.array(rows), tokens, starts, sizes, owners, columns, union)
