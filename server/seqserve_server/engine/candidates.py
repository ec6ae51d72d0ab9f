"""Rows that choose among some tokens only, their candidates: which, and what a step computes.

A step projects all rows onto the union of these tokens, and each row reads the logits of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from seqserve_server.engine.candidate_block import CandidateBlock
from seqserve_server.engine.candidate_graph import Table
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

# More than this part of the output weight costs more than all of it, which is packed.
_MAX_SHARE = 1 / 4
_MAX_BYTES = 64 << 20
"""Of the numbers of all candidates."""


class Layout(NamedTuple):
    """The N candidates of R rows, row after row."""

    rows: Array
    """Which rows, rising, ``[R]``."""
    tokens: Array
    """Candidates, rising within each row, ``[N]``."""
    starts: Array
    """Where the candidates of each row begin, ``[R]``."""
    sizes: Array
    """How many each row has, ``[R]``."""
    owners: Array
    """Index of the row of each candidate, ``[N]``."""
    union: Array
    """The candidates of all rows, rising, ``[U]``; empty where the step computes all logits."""

    def of(self, row: int) -> slice:
        """Finds the candidates of a row."""
        index = int(self.rows.searchsorted(row))
        start = int(self.starts[index])
        return slice(start, start + int(self.sizes[index]))

    def places(self, tokens_of_rows: Mapping[int, Sequence[int]]) -> Array:
        """Finds some tokens of some rows among the candidates, ``[M]``; others are left out."""
        parts = [np.empty(0, np.int64)]
        for row in tokens_of_rows.keys() & set(self.rows.tolist()):
            mine, wanted = self.of(row), tokens_of_rows[row]
            places = mine.start + self.tokens[mine].searchsorted(wanted)
            places = np.minimum(places, mine.stop - 1)
            parts.append(places[self.tokens[places] == wanted])
        return np.concatenate(parts)


class Candidates:
    """The candidates of each row that does not choose among all tokens."""

    def __init__(self, vocabulary_size: int, capacity: int) -> None:
        """Starts with no such row; a step has room for so many candidates."""
        self._capacity = capacity
        self._of: dict[int, Array] = {}
        # How many rows have each token.
        self._uses = np.zeros(vocabulary_size, np.int32)
        self._layout: Layout | None = None

    def __len__(self) -> int:
        """Counts the rows."""
        return len(self._of)

    def of(self, row: int) -> Array | None:
        """Returns the candidates of a row; None where it chooses among all tokens."""
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
        if len(union) > self._capacity:
            union = union[:0]
        return Layout(np.array(rows), tokens, starts, sizes, owners, union)


class CandidateStep:
    """Buffers for the candidates of a number of slots."""

    def __init__(
        self,
        slots: int,
        vocabulary_size: int,
        tables: Sequence[Table],
        allowed_shape: Callable[[int], tuple[int, int]],
    ) -> None:
        """Allocates them; the runtime has the tables and ``allowed_shape``."""
        capacity = _capacity(vocabulary_size, tables)
        self._block = CandidateBlock(capacity, vocabulary_size, tables, allowed_shape)
        self.inputs = self._block.inputs
        """What a step reads of all candidates, by the names of the graph's inputs."""
        groups, size = self._block.tokens.shape
        self.logits = np.zeros((slots * groups, size), np.float32)
        """Their logits for every row: what a step writes."""
        self.groups = 0
        """How many groups the next step computes."""
        self.rows = Candidates(vocabulary_size, capacity)
        self._vocabulary_size = vocabulary_size
        self._layout: Layout | None = None
        # Where the logits of the candidates are among those computed, and which are suppressed.
        self._places = np.empty(0, np.int64)
        self._masked: Array | None = None

    @property
    def needs_all_logits(self) -> bool:
        """Whether the next step must compute the logits of all tokens in place of the union's."""
        return self._layout is not None and not self.groups

    def prepare(self) -> bool:
        """Writes the union of all candidates, where it has changed; tells whether it has."""
        layout = self.rows.layout()
        if layout is self._layout:
            return False
        self._layout, self._masked = layout, None
        self.groups = 0
        if layout is not None:
            stride, columns = self._vocabulary_size, layout.tokens
            if len(layout.union):
                self._block.place(layout.union)
                self.groups = self._block.groups
                stride = self.groups * self.logits.shape[1]
                columns = self._block.columns[columns]
            self._places = (layout.rows * stride).repeat(layout.sizes) + columns
        return True

    def forget_masks(self) -> None:
        """Looks for suppressed tokens again in the next step."""
        self._masked = None

    def choose(self, all_logits: Array, suppressed: Mapping[int, Sequence[int]]) -> Choice | None:
        """Chooses for the rows that have candidates, after a step; None where there are none.

        Args:
            all_logits: Of all tokens for every row, one after the other, where the step computed
                them.
            suppressed: Suppressed tokens of each row, rising.
        """
        layout = self._layout
        if layout is None:
            return None
        computed = self.logits if self.groups else all_logits
        logits = computed.reshape(-1).take(self._places)
        if self._masked is None:
            self._masked = layout.places(suppressed)
        logits[self._masked] = MASKED_LOGIT
        return Choice(layout, logits)


def _capacity(vocabulary_size: int, tables: Sequence[Table]) -> int:
    """Finds for how many candidates a step has room; at least one."""
    size = sum(int(table.numbers[0].nbytes) for table in tables)
    return max(min(int(_MAX_SHARE * vocabulary_size), _MAX_BYTES // max(size, 1)), 1)


_LAST = np.iinfo(np.int64).max
"""Orders after every candidate."""


class Choice:
    """What R rows choose in one step."""

    def __init__(self, layout: Layout, logits: Array) -> None:
        """Finds the best candidate of each row, by the ``logits [N]`` of all candidates."""
        self.rows = layout.rows
        self._layout, self._logits = layout, logits
        self._peaks = np.maximum.reduceat(logits, layout.starts)  # [R]
        self._below = self._peaks.repeat(layout.sizes) - logits  # [N]
        # Put so that what is not a number has a best one too.
        best = (~(self._below > 0)).nonzero()[0]
        self.tokens: Array = layout.tokens[best[best.searchsorted(layout.starts)]]
        """The best token of each row, ``[R]``; among equals the first."""

    def candidates(self, row: int) -> tuple[Array, Array]:
        """Returns a row's candidates and their logits, ``[N]`` each."""
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
        log_probabilities = self._logits[places] - (self._peaks + log_totals)[:, None]
        return (
            np.where(is_missing, eos, self._layout.tokens[places]),
            np.where(is_missing, MASKED_LOGIT, log_probabilities),
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
    """Returns integers in the opposite order of float32 values, their lower 32 bits zero.

    Floats of one sign are in the order of their bits, or in the opposite one.
    """
    # Adding zero makes both zeros one.
    bits = (values + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    falling: Array = -rising.astype(np.int64) << 32
    return falling
