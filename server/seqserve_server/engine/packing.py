"""Sources of any lengths laid one after the other, so that no product is spent on padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class CrossKV:
    """Encoded sources: what the cross-attention of each decoder layer keeps of them."""

    kept: list[Array]
    """Key and value of each layer in turn, ``[T, W]``: all words of all sources."""
    last: list[Array]
    """Those of the last word of each source, ``[B, 1, W]``."""
    starts: list[int]
    """Where each source begins, and where the last one ends."""

    def length(self, index: int) -> int:
        """Tells how many words a source has."""
        return self.starts[index + 1] - self.starts[index]

    def of_source(self, kept: Array, index: int) -> Array:
        """Gives what belongs to one source, ``[S, W]``."""
        return kept[self.starts[index] : self.starts[index + 1]]


def starts_of(sources: Sequence[Sequence[int]]) -> list[int]:
    """Tells where each source begins when they lie one after the other, and where all end."""
    starts = [0]
    for source in sources:
        starts.append(starts[-1] + len(source))
    return starts


def laid_out(sources: Sequence[Sequence[int]]) -> dict[str, Array]:
    """Lays sources one after the other; the inputs of the encoder graph.

    Args:
        sources: Token ids, none of them empty.

    Returns:
        ``source`` and ``positions`` int64 ``[T]``, ``source_lengths`` int32 ``[B]``; ``pad_index``
        int64 ``[B, S]``, the word at each place of a padded batch, where a source that has ended
        repeats its last word; ``unpad_index`` int64 ``[T]``, the place of each word in that batch.
    """
    lengths = np.array([len(source) for source in sources])
    starts = np.cumsum(lengths) - lengths
    places = np.arange(lengths.max())
    unpad_index = np.flatnonzero(places < lengths[:, None])
    return {
        "source": np.array([word for source in sources for word in source], np.int64),
        "positions": unpad_index % len(places),
        "source_lengths": lengths.astype(np.int32),
        "pad_index": starts[:, None] + np.minimum(places, lengths[:, None] - 1),
        "unpad_index": unpad_index,
    }
