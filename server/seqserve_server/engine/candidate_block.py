"""Where the candidates of all rows are in a step, and the numbers that it is given of them.

A candidate keeps its column while rows that have it run. So only what a joining row brings is
written, into columns that no row needs any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from seqserve_server.engine.candidate_graph import Table
from seqserve_server.engine.packing import Array

# How many times the groups that are needed stay, because fewer would have tokens move.
_SPARE = 5 / 4


class CandidateBlock:
    """The candidates of all rows in groups of tokens, as a step reads them."""

    def __init__(
        self,
        capacity: int,
        vocabulary_size: int,
        tables: Sequence[Table],
        allowed_shape: Callable[[int], tuple[int, int]],
    ) -> None:
        """Allocates room; memory is touched when it is first written.

        Args:
            capacity: The most candidates.
            vocabulary_size: Of the model.
            tables: Numbers that a step is given of each candidate.
            allowed_shape: That of the runtime.
        """
        self._allowed_shape = allowed_shape
        shape = allowed_shape(capacity)
        self.tokens = np.zeros(shape, np.int64)
        """Token of each column, in groups ``[G, 64]``."""
        self.columns = np.full(vocabulary_size, self.tokens.size)
        """Column of each token that has one."""
        self.groups = 0
        """How many groups a step reads."""
        self._tables = tables
        # Each is [G, 64, N], whatever the order of its numbers in memory.
        self._kept = [_allocated(table, shape) for table in tables]

    @property
    def inputs(self) -> dict[str, Array]:
        """What a step reads, by the names of the graph's inputs."""
        kept = zip(self._tables, self._kept, strict=True)
        tables = {table.input: _turned(table, numbers) for table, numbers in kept}
        return {"allowed_tokens": self.tokens, **tables}

    def place(self, union: Array) -> None:
        """Gives every token of ``union`` a column; others may lose theirs."""
        groups, size = self._allowed_shape(len(union))
        if not groups <= self.groups <= _SPARE * groups:
            self.groups = groups
        end = self.groups * size
        tokens = self.tokens.reshape(-1)[:end]
        columns = self.columns[union]
        has_place = columns < end
        has_place[has_place] = tokens[columns[has_place]] == union[has_place]
        missing = union[~has_place]
        if not len(missing):
            return
        is_free = np.ones(end, np.bool_)
        is_free[columns[has_place]] = False
        free = is_free.nonzero()[0][: len(missing)]
        tokens[free], self.columns[missing] = missing, free
        for table, kept in zip(self._tables, self._kept, strict=True):
            kept[free // size, free % size] = table.numbers[missing]


def _allocated(table: Table, shape: tuple[int, int]) -> Array:
    groups, size = shape
    width = table.numbers.shape[1]
    in_memory = (groups, width, size) if table.is_turned else (groups, size, width)
    return _turned(table, np.zeros(in_memory, table.numbers.dtype))


def _turned(table: Table, kept: Array) -> Array:
    return kept.swapaxes(1, 2) if table.is_turned else kept
