"""The decoder state of each row, in the memory of a GPU.

A copy there takes as long as the host takes to start it, so several rows share one.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np

from seqserve_server.engine.decoder_state import (
    CellState,
    CrossAttentionCache,
    SelfAttentionCache,
    StateTypes,
)
from seqserve_server.engine.gpu.device import Device
from seqserve_server.engine.packing import Array, CrossKV


def _queued(method: Callable[..., None]) -> Callable[..., None]:
    @wraps(method)
    def queued(self: Any, *arguments: Any) -> None:
        with self._device:
            method(self, *arguments)

    return queued


class DeviceCellState(CellState):
    """States of recurrent layers; see :class:`CellState`."""

    def __init__(self, device: Device, *size: Any) -> None:
        super().__init__(*size)
        self._device = device

    start, copy = _queued(CellState.start), _queued(CellState.copy)
    clear = _queued(CellState.clear)

    def branch(self, sources: Array, targets: Array, begins: Array, ends: Array) -> None:
        """Copies rows over other rows, none of them among the sources."""
        with self._device:
            take = self._device.arrays.asarray
            super().branch(take(sources), take(targets), begins, ends)


class DeviceSelfAttentionCache(SelfAttentionCache):
    """Keys and values of target tokens; see :class:`SelfAttentionCache`."""

    def __init__(self, device: Device, *size: Any) -> None:
        super().__init__(*size)
        self._device = device

    copy, clear = _queued(SelfAttentionCache.copy), _queued(SelfAttentionCache.clear)

    def branch(self, sources: Array, targets: Array, begins: Array, ends: Array) -> None:
        """Copies rows over other rows, none of them among the sources."""
        if not len(sources):
            return
        begin, end = int(begins.min()), int(ends.max())
        with self._device:
            take = self._device.arrays.asarray
            entries = self.layers[:, take(sources), :, begin:end]
            self.layers[:, take(targets), :, begin:end] = entries


class DeviceCrossAttentionCache(CrossAttentionCache):
    """Keys and values of sources; rows that join are copied together before a step."""

    def __init__(self, device: Device, *size: Any) -> None:
        super().__init__(*size)
        self._device = device
        self._joining: dict[int, tuple[CrossKV, int]] = {}

    def join(self, row: int | list[int], cross_kv: CrossKV, index: int) -> None:
        """Notes that a row, or several, get a newly encoded source."""
        self._joining |= dict.fromkeys([row] if isinstance(row, int) else row, (cross_kv, index))

    def flush(self) -> None:
        """Copies the sources of rows that have joined, all that were encoded together at once."""
        if not self._joining:
            return
        groups: dict[int, tuple[CrossKV, list[int], list[int]]] = {}
        for row, (cross_kv, index) in self._joining.items():
            _, rows, indices = groups.setdefault(id(cross_kv), (cross_kv, [], []))
            rows.append(row)
            indices.append(index)
        self._joining = {}
        with self._device:
            for cross_kv, rows, indices in groups.values():
                self._put(cross_kv, rows, indices)

    def _put(self, cross_kv: CrossKV, rows: list[int], indices: list[int]) -> None:
        starts, chosen = np.array(cross_kv.starts), np.array(indices)
        lengths = starts[chosen + 1] - starts[chosen]
        longest = int(lengths.max())
        # A source that has ended repeats its last token, which no row reads.
        places = np.minimum(np.arange(longest), lengths[:, None] - 1) + starts[chosen, None]
        sent = self._device.arrays.asarray(np.column_stack([rows, chosen, places]))
        rows_sent, indices_sent, places_sent = sent[:, 0], sent[:, 1], sent[:, 2:]
        packed, last = cross_kv.packed, cross_kv.last
        assert not isinstance(packed, list) and not isinstance(last, list)
        entries = packed[:, places_sent]  # [2L, N, S, A]
        entries = entries.reshape(*entries.shape[:3], self._heads, -1).swapaxes(2, 3)
        self.layers[:, rows_sent, :, :longest] = entries
        self.last_layers[:, rows_sent] = last[:, indices_sent]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies a row over another one."""
        self.flush()
        with self._device:
            super().copy(source, target, length)

    def clear(self, length: int) -> None:
        """Empties all rows."""
        self._joining = {}
        with self._device:
            super().clear(length)


def types_on(device: Device) -> StateTypes:
    """Returns what allocates the state in the memory of a GPU."""
    return StateTypes(
        partial(DeviceSelfAttentionCache, device),
        partial(DeviceCrossAttentionCache, device),
        partial(DeviceCellState, device),
        device.zeros,
    )
