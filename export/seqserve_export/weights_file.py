"""The file of an artifact's weights, written piece by piece, each content once."""

from __future__ import annotations

import hashlib
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

# The operating system maps files by pages: a weight that begins on one is read without a copy.
_PAGE_BYTES = 4096
# Kernels read numbers only from aligned addresses.
_ALIGNMENT_BYTES = 64
# Query, key and value are joined in some graphs and apart in others.
_JOINED = 3


class WeightsFile:
    """Places weights in a file; none is kept in memory."""

    def __init__(self, file: BinaryIO) -> None:
        """Begins with an empty file."""
        self._file = file
        self._places: dict[bytes, int] = {}

    def place(self, array: NDArray[Any]) -> int:
        """Gives the offset of an array's bytes, and writes them if they are not there yet.

        A projection that is a third of an earlier one, joined of query, key and value, is found
        within it.
        """
        data = np.ascontiguousarray(array)
        key = _key(data)
        if key not in self._places:
            self._places[key] = offset = self._append(data)
            self._note_parts(data, offset)
        return self._places[key]

    def _append(self, data: NDArray[Any]) -> int:
        end = self._file.tell()
        self._file.write(bytes(-end % _PAGE_BYTES))
        offset = self._file.tell()
        self._file.write(_bytes(data))
        return offset

    def _note_parts(self, data: NDArray[Any], offset: int) -> None:
        step = data.nbytes // _JOINED
        if len(data) % _JOINED or step % _ALIGNMENT_BYTES:
            return
        for index, part in enumerate(np.split(data, _JOINED)):
            self._places.setdefault(_key(part), offset + index * step)


def _key(data: NDArray[Any]) -> bytes:
    return hashlib.sha256(_bytes(data)).digest()


def _bytes(data: NDArray[Any]) -> memoryview:
    return data.reshape(-1).view(np.uint8).data
