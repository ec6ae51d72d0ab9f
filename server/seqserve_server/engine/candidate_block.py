"""Where the candidates of all rows are in a step, and the weights that it is given of them.

Each set of candidates has groups of its own, which the rows that share the set are multiplied with:
those of one request. So no row pays for the candidates of others. A set keeps its groups while rows
that have it run, so only those of a joining request are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqserve_server.engine.packing import Array


class Table(NamedTuple):
    """Weights of every token, of which a step is given those of candidates."""

    input: str
    """Of the step's graph, and the output of the one that gathers them."""
    shape: tuple[int, int]
    """Of a group: ``[64, N]``, or ``[N, 64]`` where it is turned."""
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Of all weights of a group."""
        return self.dtype.itemsize * math.prod(self.shape)


class _Placed(NamedTuple):
    """A set that has groups."""

    tokens: Array
    """The set itself, which is kept so that no other one is taken for it."""
    groups: Array
    """Which groups, ``[K]``."""
    columns: Array
    """Where each of its tokens is among those of all groups, ``[N]``."""


class CandidateBlock:
    """Sets of candidates in groups of tokens, as a step reads them."""

    def __init__(
        self,
        capacity: int,
        slots: int,
        tables: Sequence[Table],
        weights_of: Callable[[Array], Sequence[Array]],
        allowed_shape: Callable[[int], tuple[int, int]],
    ) -> None:
        """Allocates room; memory is touched when it is first written.

        Args:
            capacity: The most tokens of all groups.
            slots: The most rows that share a set.
            tables: Weights that a step is given of each candidate.
            weights_of: Gathers them for groups of tokens ``[K, 64]``, an array for each table.
            allowed_shape: That of the runtime.
        """
        self._allowed_shape = allowed_shape
        self._weights_of = weights_of
        shape = groups, self._size = allowed_shape(capacity)
        self._tokens = np.zeros(shape, np.int64)
        self._rows = np.zeros(groups * slots, np.int64)
        self._kept = [np.zeros((groups, *table.shape), table.dtype) for table in tables]
        self.inputs: dict[str, Array] = {
            "allowed_tokens": self._tokens,
            "allowed_rows": self._rows,
            **{table.input: kept for table, kept in zip(tables, self._kept, strict=True)},
        }
        """What a step reads, by the names of the graph's inputs."""
        self.groups = 0
        """How many groups a step reads."""
        self.rows = 1
        """How many rows each group is multiplied with."""
        # By the identity of the set.
        self._placed: dict[int, _Placed] = {}

    def place(self, sets: Sequence[Array], rows_of: Sequence[Sequence[int]]) -> bool:
        """Gives each set groups of its own, in which it is multiplied with its rows.

        Args:
            sets: Tokens of each set ``[N]``, at least one.
            rows_of: The rows of each.

        Returns:
            Whether there is room; if not, nothing has changed.
        """
        counts = [-(-len(tokens) // self._size) for tokens in sets]
        if sum(counts) > len(self._tokens):
            return False
        before, self._placed = self._placed, {}
        for tokens in sets:
            if id(tokens) in before:
                self._placed[id(tokens)] = before[id(tokens)]
        free = self._free_groups()
        for tokens, count in zip(sets, counts, strict=True):
            if id(tokens) not in self._placed:
                self._placed[id(tokens)] = self._write(tokens, free[:count])
                free = free[count:]
        self._write_rows([self._placed[id(tokens)].groups for tokens in sets], rows_of)
        return True

    def columns(self, tokens: Array) -> Array:
        """Finds where each token of a set is among those of all groups, ``[N]``."""
        return self._placed[id(tokens)].columns

    def _free_groups(self) -> Array:
        is_free = np.ones(len(self._tokens), np.bool_)
        for placed in self._placed.values():
            is_free[placed.groups] = False
        return is_free.nonzero()[0]

    def _write(self, tokens: Array, groups: Array) -> _Placed:
        """Writes a set into groups; the last token fills what is left of the last one."""
        of_groups = np.full((len(groups), self._size), tokens[-1])
        of_groups.reshape(-1)[: len(tokens)] = tokens
        self._tokens[groups] = of_groups
        for kept, weights in zip(self._kept, self._weights_of(of_groups), strict=True):
            kept[groups] = weights
        columns = (groups[:, None] * self._size + np.arange(self._size)).reshape(-1)
        return _Placed(tokens, groups, columns[: len(tokens)])

    def _write_rows(self, groups: Sequence[Array], rows_of: Sequence[Sequence[int]]) -> None:
        """Writes which rows each group is multiplied with; those that are too few repeat."""
        if not groups:
            self.groups, self.rows = 0, 1
            return
        flat, counts = np.concatenate(groups), [len(each) for each in groups]
        self.groups = self._allowed_shape((int(flat.max()) + 1) * self._size)[0]
        self.rows = longest = max(map(len, rows_of))
        rows = np.array([[*rows, *[rows[0]] * (longest - len(rows))] for rows in rows_of])
        written = self._rows[: self.groups * longest].reshape(-1, longest)
        # A group of no set is computed too.
        written[:] = 0
        written[flat] = rows.repeat(counts, axis=0)
