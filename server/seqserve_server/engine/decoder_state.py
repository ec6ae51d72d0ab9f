"""What the decoder's layers keep of each row: keys and values, or states of recurrent layers.

Each class holds the buffers of all layers by the names that the decoder graph gives its inputs. The
first axis is the row; a row is copied and cleared no further than it is filled.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any, Protocol

import numpy as np

from seqserve_server.contract.manifest import Architecture
from seqserve_server.engine.packing import Array, CrossKV


class TargetState(Protocol):
    """What a row has read of its target: keys and values, or states of recurrent layers."""

    arrays: dict[str, Array]
    """Read and written by each step, in place."""

    def start(self, row: int) -> None:
        """Makes a row one that has read nothing."""

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copies a row over another one, as far as they differ: entries ``begin`` to ``end``."""

    def clear(self, length: int) -> None:
        """Empties all rows, none of which has read more than ``length`` tokens."""


class SelfAttentionCache:
    """Keys and values of the target tokens read, ``[B, H, T, D]`` each."""

    def __init__(self, shape: Architecture, slots: int, length: int, dtype: np.dtype[Any]) -> None:
        """Allocates room for ``length`` tokens in every slot."""
        size = (slots, shape.heads, length, shape.head_size)
        self.arrays = _by_layer(shape, "self", size, dtype)

    def start(self, row: int) -> None:
        """Does nothing: a row reads no further than its length."""

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copies a row over another one, as far as they differ: tokens ``begin`` to ``end``."""
        _copy(self.arrays, source, target, begin, end)

    def clear(self, length: int) -> None:
        """Empties all rows, none of which has read more than ``length`` tokens."""
        _clear(self.arrays, length)


class CellState:
    """States of recurrent layers, ``[B, W]`` each, whatever the number of tokens read."""

    def __init__(self, shape: Architecture, slots: int) -> None:
        """Allocates a vector for each layer and slot."""
        self.arrays: dict[str, Array] = {
            f"cell_{layer}": np.zeros((slots, shape.cell_width or 0), np.float32)
            for layer in range(shape.decoder_layers)
        }

    def start(self, row: int) -> None:
        """Makes a row one that has read nothing."""
        for states in self.arrays.values():
            states[row] = 0.0

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copies a row over another one: its states, whatever the tokens."""
        for states in self.arrays.values():
            states[target] = states[source]

    def clear(self, length: int) -> None:
        """Empties all rows."""
        for states in self.arrays.values():
            states[:] = 0.0


class CrossAttentionCache:
    """Keys and values of the sources, and once more of the last token of each source."""

    def __init__(self, shape: Architecture, slots: int, length: int, dtype: np.dtype[Any]) -> None:
        """Allocates room for ``length`` tokens in every slot."""
        self._heads = shape.heads
        size = (slots, shape.heads, length, shape.head_size)
        self.arrays = _by_layer(shape, "cross", size, dtype)
        """Read and written by each step, in place: ``[B, H, S, D]``."""
        # Views as the encoder gives them: [B, S, H, D].
        self._by_token = [array.swapaxes(1, 2) for array in self.arrays.values()]
        last = (slots, 1, shape.heads * shape.head_size)
        self.last = _by_layer(shape, "last", last, np.dtype("f4") if dtype == np.int8 else dtype)
        """Read by each step: ``[B, 1, A]``."""

    def join(self, row: int, cross_kv: CrossKV, index: int) -> None:
        """Copies a newly encoded source into a row."""
        length = cross_kv.length(index)
        for by_token, packed in zip(self._by_token, cross_kv.packed, strict=True):
            entries = cross_kv.of_source(packed, index)  # [S, A]
            by_token[row, :length] = entries.reshape(length, self._heads, -1)
        for cache, last in zip(self.last.values(), cross_kv.last, strict=True):
            cache[row] = last[index]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies a row, whose source has ``length`` tokens, over another one."""
        _copy(self.arrays, source, target, 0, length)
        for cache in self.last.values():
            cache[target] = cache[source]

    def clear(self, length: int) -> None:
        """Empties all rows, none of whose sources has more than ``length`` tokens."""
        _clear(self.arrays, length)
        for cache in self.last.values():
            cache[:] = 0


def _by_layer(
    shape: Architecture, kind: str, size: tuple[int, ...], dtype: np.dtype[Any]
) -> dict[str, Array]:
    """Allocates keys and values of every layer."""
    return {
        f"{kind}_{part}_{layer}": _untouched(size, dtype)
        for layer in range(shape.decoder_layers)
        for part in ("key", "value")
    }


def _copy(caches: dict[str, Array], source: int, target: int, begin: int, end: int) -> None:
    for cache in caches.values():
        cache[target, :, begin:end] = cache[source, :, begin:end]


def _clear(caches: dict[str, Array], length: int) -> None:
    for cache in caches.values():
        cache[:, :, :length] = 0


def _untouched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocates zeros that take memory page by page, as they are written.

    Those of numpy would take it in huge pages: a row that is hardly filled takes all it could hold.
    """
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)
