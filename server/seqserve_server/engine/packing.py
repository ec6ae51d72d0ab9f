"""Packs sources of any lengths one after the other, so that no product is spent on padding."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class CrossKV:
    """Encoded sources: keys and values for the cross-attention of each decoder layer."""

    packed: list[Array] | Array
    """Key and value of each layer in turn, ``[T, W]``: all tokens of all sources. One array
    ``[2L, T, W]`` where a GPU has them."""
    last: list[Array] | Array
    """Those of the last token of each source, ``[B, 1, W]``; or ``[2L, B, 1, W]``."""
    starts: list[int]
    """Where each source begins, and where the last one ends."""

    def length(self, index: int) -> int:
        """Returns the number of tokens of a source."""
        return self.starts[index + 1] - self.starts[index]

    def of_source(self, packed: Array, index: int) -> Array:
        """Returns the part of one source, ``[S, W]``."""
        return packed[self.starts[index] : self.starts[index + 1]]


@dataclass(frozen=True, slots=True)
class EncodedSource:
    """One of the sources that were encoded together."""

    cross_kv: CrossKV
    index: int


def starts_of(sources: Sequence[Sequence[int]]) -> list[int]:
    """Returns where each source begins when they are packed, and where the last one ends."""
    starts = [0]
    for source in sources:
        starts.append(starts[-1] + len(source))
    return starts


def pack(sources: Sequence[Sequence[int]], longest: int = 0) -> dict[str, Array]:
    """Packs sources, none of them empty, into the inputs of the encoder graph.

    ``source`` and ``positions`` int64 ``[T]``; ``source_lengths`` int32 ``[B]``; ``pad_index``
    int64 ``[B, S]``, the packed index of each place of the padded batch, where a source that has
    ended repeats its last token; ``unpad_index`` int64 ``[T]``, the place of each packed token in
    the flattened padded batch. S is ``longest``, or the length of the longest source.
    """
    lengths = np.array([len(source) for source in sources])
    starts = np.cumsum(lengths) - lengths
    positions = np.arange(longest or lengths.max())
    unpad_index = np.flatnonzero(positions < lengths[:, None])
    return {
        "source": np.array([token for source in sources for token in source], np.int64),
        "positions": unpad_index % len(positions),
        "source_lengths": lengths.astype(np.int32),
        "pad_index": starts[:, None] + np.minimum(positions, lengths[:, None] - 1),
        "unpad_index": unpad_index,
    }


class EncodingLimits(NamedTuple):
    """How many sources are encoded together."""

    budget_tokens: int
    """Source tokens encoded between two steps."""
    group_tokens: int
    """Source tokens encoded at once."""
    group_sources: int = 4
    """Waiting sources that are encoded at once; fewer may wait some steps for others."""
    rows_for_a_step: int = 8
    """They wait one step at most for each so many running rows."""
