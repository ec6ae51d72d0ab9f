"""The decoder state of each row: keys and values, or states of recurrent layers.

Each class holds one buffer for all layers, and the parts of it by the names that the decoder graph
gives its inputs. The first axis of a part is the row; a row is copied and cleared no further than
it is filled.
"""

import contextlib
import math
import mmap
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from seqserve_server.artifact.manifest import Architecture, Manifest
from seqserve_server.engine.packing import Array, CrossKV

Allocate = Callable[[tuple[int, ...], np.dtype[Any]], Array]

MIN_LENGTH = 2
"""Tokens that a cache has room for at least: the attention operator takes a maximum length of 1 for
the start of a prompt."""


class SelfAttentionCache:
    """Keys and values of the target tokens read, ``[B, H, T, D]`` each."""

    def __init__(
        self,
        shape: Architecture,
        slots: int,
        length: int,
        dtype: np.dtype[Any],
        allocate: Allocate,
    ) -> None:
        self.layers, self.arrays = _by_layer(shape, "self", slots, length, dtype, allocate)
        """Of all layers, ``[2L, B, H, T, D]``."""

    def start(self, row: int | list[int]) -> None:
        """Does nothing: a row reads no further than its length."""

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copies a row over another one, as far as they differ: tokens ``begin`` to ``end``."""
        _copy(self.layers, source, target, begin, end)

    def branch(self, sources: Array, targets: Array, begins: Array, ends: Array) -> None:
        """Copies rows over other rows, none of them among the sources."""
        # One by one: rows differ in where they begin to differ, and most do so near their end.
        pairs = (sources, targets, begins, ends)
        for source, target, begin, end in zip(*(each.tolist() for each in pairs), strict=True):
            self.copy(source, target, begin, end)

    def clear(self, length: int) -> None:
        """Empties all rows, none of which has read more than ``length`` tokens."""
        self.layers[:, :, :, :length] = 0


class CellState:
    """States of recurrent layers, ``[B, W]`` each, whatever the number of tokens read."""

    def __init__(self, shape: Architecture, slots: int, allocate: Allocate) -> None:
        size = (shape.decoder_layers, slots, shape.cell_width or 0)
        self.layers = allocate(size, np.dtype(np.float32))
        """Of all layers, ``[L, B, W]``."""
        self.arrays: dict[str, Array] = {
            f"cell_{layer}": states for layer, states in enumerate(self.layers)
        }

    def start(self, row: int | list[int]) -> None:
        """Makes a row, or several, one that has read nothing."""
        self.layers[:, row] = 0.0

    def copy(self, source: int, target: int, begin: int, end: int) -> None:
        """Copies a row over another one: its states, whatever the tokens."""
        self.layers[:, target] = self.layers[:, source]

    def branch(self, sources: Array, targets: Array, begins: Array, ends: Array) -> None:
        """Copies rows over other rows, none of them among the sources."""
        self.layers[:, targets] = self.layers[:, sources]

    def clear(self, length: int) -> None:
        """Empties all rows."""
        self.layers[:] = 0.0


TargetState: TypeAlias = SelfAttentionCache | CellState
"""The state of a row after the target tokens that it has read."""


class CrossAttentionCache:
    """Keys and values of the sources, and once more of the last token of each source."""

    def __init__(
        self,
        shape: Architecture,
        slots: int,
        length: int,
        dtype: np.dtype[Any],
        allocate: Allocate,
    ) -> None:
        self._heads = shape.heads
        self.layers, self.arrays = _by_layer(shape, "cross", slots, length, dtype, allocate)
        """Of all layers, ``[2L, B, H, S, D]``, and each by its name; steps read and write them
        in place."""
        last = np.dtype("f4") if dtype == np.int8 else dtype
        size = (2 * shape.decoder_layers, slots, 1, shape.heads * shape.head_size)
        self.last_layers = allocate(size, last)
        """Keys and values of the last tokens, ``[2L, B, 1, A]``."""
        self.last = dict(zip(_names(shape, "last"), self.last_layers, strict=True))
        """Read by each step: ``[B, 1, A]``."""

    def join(self, row: int | list[int], cross_kv: CrossKV, index: int) -> None:
        """Copies a newly encoded source into a row, or into several."""
        first, *others = [row] if isinstance(row, int) else row
        length = cross_kv.length(index)
        for cache, packed in zip(self.layers, cross_kv.packed, strict=True):
            entries = cross_kv.of_source(packed, index).reshape(length, self._heads, -1)
            cache[first, :, :length] = entries.swapaxes(0, 1)
        for cache, last in zip(self.last_layers, cross_kv.last, strict=True):
            cache[first] = last[index]
        for other in others:
            self.copy(first, other, length)

    def flush(self) -> None:
        """Does what :meth:`join` has put off; called before a step."""

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies a row, whose source has ``length`` tokens, over another one."""
        _copy(self.layers, source, target, 0, length)
        self.last_layers[:, target] = self.last_layers[:, source]

    def clear(self, length: int) -> None:
        """Empties all rows, none of whose sources has more than ``length`` tokens."""
        self.layers[:, :, :, :length] = 0
        self.last_layers[:] = 0


def untouched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocates zeros that take memory page by page, as they are written, and not in huge pages."""
    num_bytes = max(math.prod(shape) * dtype.itemsize, 1)
    try:
        memory = mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError):
        raise MemoryError(f"no room for {num_bytes:,} bytes") from None
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype, math.prod(shape)).reshape(shape)


class StateTypes(NamedTuple):
    """Allocators of each part of the state, in the memory of the host or elsewhere."""

    target: Callable[[Architecture, int, int, np.dtype[Any], Allocate], SelfAttentionCache]
    cross: Callable[[Architecture, int, int, np.dtype[Any], Allocate], CrossAttentionCache]
    cell: Callable[[Architecture, int, Allocate], CellState]
    allocate: Allocate


_ON_HOST = StateTypes(SelfAttentionCache, CrossAttentionCache, CellState, untouched)


def allocate_state(
    manifest: Manifest, slots: int, dtype: np.dtype[Any], types: StateTypes = _ON_HOST
) -> tuple[TargetState, CrossAttentionCache]:
    """Allocates what the decoder's layers keep of all slots; MemoryError if it does not fit."""
    shape, limits, allocate = manifest.architecture, manifest.limits, types.allocate
    source = max(limits.max_source_length, MIN_LENGTH)
    cross = types.cross(shape, slots, source, dtype, allocate)
    if shape.cell_width:
        return types.cell(shape, slots, allocate), cross
    # The begin token is read too.
    target = limits.max_target_length + 1
    return types.target(shape, slots, target, dtype, allocate), cross


def _by_layer(
    shape: Architecture,
    kind: str,
    slots: int,
    length: int,
    dtype: np.dtype[Any],
    allocate: Allocate,
) -> tuple[Array, dict[str, Array]]:
    """Allocates keys and values of all layers; returns them together, and each by its name."""
    size = (2 * shape.decoder_layers, slots, shape.heads, length, shape.head_size)
    layers = allocate(size, dtype)
    return layers, dict(zip(_names(shape, kind), layers, strict=True))


def _names(shape: Architecture, kind: str) -> list[str]:
    layers = range(shape.decoder_layers)
    return [f"{kind}_{part}_{layer}" for layer in layers for part in ("key", "value")]


def _copy(layers: Array, source: int, target: int, begin: int, end: int) -> None:
    layers[:, target, :, begin:end] = layers[:, source, :, begin:end]
