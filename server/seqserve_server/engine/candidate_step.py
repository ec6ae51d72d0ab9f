"""Where the candidates of all rows are in a step, and the weights that it is given of them.

Each set of candidates has its own groups. Only the rows of its request are multiplied with them, so
no row pays for the candidates of others. A set keeps its groups while rows
that have it run, so only the groups of a joining request are written.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqserve_server.engine.candidates import Candidates, Choice, Layout
from seqserve_server.engine.decoder_state import untouched
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

# More than this part of the output weight, for one set of candidates and for each other one, costs
# more than all of it, which is packed.
_MAX_SHARE, _SHARE_OF_OTHERS = 1 / 4, 1 / 16
_MAX_BYTES = 128 << 20
"""Maximum size of the weights of all candidates."""


class Table(NamedTuple):
    """Weights of every token; a step gets the weights of candidates."""

    input: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    @property
    def bytes(self) -> int:
        """Size of all weights of a group."""
        return self.dtype.itemsize * math.prod(self.shape)


class _Placed(NamedTuple):
    tokens: Array
    """The set itself, which is kept so that no other one is taken for it."""
    groups: Array
    """Which groups, ``[K]``."""
    columns: Array
    """Position of each of its tokens in all groups, ``[N]``."""


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
        """Allocates room for ``capacity`` tokens; at most ``slots`` rows share a set.

        ``weights_of`` gathers the weights of groups ``[K, 64]``, an array for each table.
        """
        self._allowed_shape = allowed_shape
        self._weights_of = weights_of
        shape = groups, self._size = allowed_shape(capacity)
        self._tokens = np.zeros(shape, np.int64)
        self._rows = np.zeros(groups * slots, np.int64)
        self._kept = [untouched((groups, *table.shape), table.dtype) for table in tables]
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
        """Assigns each set ``[N]`` groups, to multiply with its rows; False without room."""
        counts = [-(-len(tokens) // self._size) for tokens in sets]
        if sum(counts) > len(self._tokens):
            return False
        before, self._placed = self._placed, {}
        for tokens in sets:
            if id(tokens) in before:
                self._placed[id(tokens)] = before[id(tokens)]
        is_free = np.ones(len(self._tokens), np.bool_)
        for placed in self._placed.values():
            is_free[placed.groups] = False
        free = is_free.nonzero()[0]
        for tokens, count in zip(sets, counts, strict=True):
            if id(tokens) not in self._placed:
                self._placed[id(tokens)] = self._write(tokens, free[:count])
                free = free[count:]
        self._write_rows([self._placed[id(tokens)].groups for tokens in sets], rows_of)
        return True

    def columns(self, tokens: Array) -> Array:
        """Finds the position of each token of a set in all groups, ``[N]``."""
        return self._placed[id(tokens)].columns

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


class CandidateStep:
    """Buffers for the candidates of a number of slots."""

    def __init__(
        self,
        slots: int,
        vocabulary_size: int,
        tables: Sequence[Table],
        weights_of: Callable[[Array], Sequence[Array]],
        allowed_shape: Callable[[int], tuple[int, int]],
    ) -> None:
        _, size = allowed_shape(1)
        token_bytes = max(sum(table.bytes for table in tables) // size, 1)
        share = _MAX_SHARE + slots * _SHARE_OF_OTHERS
        capacity = max(min(int(share * vocabulary_size), _MAX_BYTES // token_bytes), 1)
        self._block = CandidateBlock(capacity, slots, tables, weights_of, allowed_shape)
        self.inputs = self._block.inputs
        """Inputs of a step from all candidates, by the names of the graph's inputs."""
        groups, _ = self.inputs["allowed_tokens"].shape
        self.logits = np.zeros((slots * groups + 1, size), np.float32)
        """Their logits for the rows that have them: what a step writes, all but the last."""
        self.logits[-1] = -np.inf
        self.groups = 0
        """How many groups the next step computes."""
        self.candidates = Candidates()
        self._vocabulary_size = vocabulary_size
        self._layout: Layout | None = None
        # Where the logits of the candidates are among those computed, and which are suppressed.
        self._places = np.empty(0, np.int64)
        self._masked: Array | None = None

    @property
    def needs_all_logits(self) -> bool:
        """Whether the next step must compute the logits of all tokens, not only candidates."""
        return self._layout is not None and not self.groups

    @property
    def rows_of_group(self) -> int:
        """How many rows each group is multiplied with."""
        return self._block.rows if self.groups else 1

    def prepare(self) -> bool:
        """Writes the candidates of all rows, where they have changed; tells whether they have."""
        layout = self.candidates.layout()
        if layout is self._layout:
            return False
        self._layout, self._masked = layout, None
        sets, rows_of = self.candidates.sets()
        # With more of them, computing all logits takes less time.
        share = _MAX_SHARE + max(len(sets) - 1, 0) * _SHARE_OF_OTHERS
        are_few = sum(map(len, sets)) <= share * self._vocabulary_size
        is_placed = are_few and self._block.place(sets, rows_of)
        self.groups = self._block.groups if is_placed else 0
        if layout is not None:
            self._places = self._logit_places(layout, sets, rows_of)
        return True

    def _logit_places(
        self, layout: Layout, sets: Sequence[Array], rows_of: Sequence[Sequence[int]]
    ) -> Array:
        """Finds the logits of each row's candidates among all that are computed, ``[R, N]``."""
        places = np.full(layout.tokens.shape, -1)
        if not self.groups:
            begins = layout.rows[:, None] * self._vocabulary_size
            places[layout.is_real] = (begins + layout.tokens)[layout.is_real]
            return places
        stride = self.groups * self.logits.shape[1]
        lines = {row: line for line, row in enumerate(layout.rows.tolist())}
        for tokens, rows in zip(sets, rows_of, strict=True):
            columns = self._block.columns(tokens)
            for index, row in enumerate(rows):
                places[lines[row], : len(columns)] = columns + index * stride
        return places

    def forget_masks(self) -> None:
        """Looks for suppressed tokens again in the next step."""
        self._masked = None

    def choose(self, all_logits: Array, suppressed: Mapping[int, Sequence[int]]) -> Choice | None:
        """Chooses for the rows that have candidates, after a step; None without such rows.

        ``all_logits`` has the logits of every row, then minus infinity.
        """
        layout = self._layout
        if layout is None:
            return None
        computed = self.logits if self.groups else all_logits
        logits = computed.reshape(-1).take(self._places)
        if self._masked is None:
            self._masked = layout.places(suppressed)
        logits.reshape(-1)[self._masked] = MASKED_LOGIT
        return Choice(layout, logits)
