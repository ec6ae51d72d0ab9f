"""The weights of an artifact in the memory of a GPU, each of them once.

The graphs of a model, and the graphs that are made of its steps, share most weights. Left to
itself, ONNX Runtime copies them to the GPU for every graph.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.gpu.device import Device
from seqserve_server.engine.graph_messages import graphs_of

_TYPES = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64, 10: np.float16}
"""Numpy's types by their numbers in onnx.proto."""


class DeviceWeights:
    """Tensors of one file."""

    def __init__(self, path: Path, device: Device) -> None:
        """Maps the file, which has been checked; nothing is copied yet."""
        with path.open("rb") as file:
            self._file = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._device = device
        self._arrays: dict[tuple[int, int, tuple[int, ...]], Any] = {}

    @property
    def bytes(self) -> int:
        """Bytes on the device."""
        return sum(array.nbytes for array in self._arrays.values())

    def share(self, graph: Any, options: ort.SessionOptions) -> list[ort.OrtValue]:
        """Gives a session the tensors of its graph that are in the file.

        Args:
            graph: The message.
            options: Of the session.

        Returns:
            What must live as long as the session.
        """
        shared = []
        for part in graphs_of(graph):
            for tensor in part.tensors:
                if tensor.external:
                    value = ort.OrtValue.from_dlpack(self._array(tensor))
                    options.add_initializer(tensor.name, value)
                    shared.append(value)
        return shared

    def _array(self, tensor: Any) -> Any:
        entries = {entry.key: entry.value for entry in tensor.external}
        offset, dims = int(entries.get("offset", 0)), tuple(tensor.dims)
        key = (offset, tensor.kind, dims)
        if key not in self._arrays:
            dtype = np.dtype(_TYPES[tensor.kind])
            count = int(np.prod(dims, dtype=np.int64))
            host = np.frombuffer(self._file, dtype, count, offset).reshape(dims)
            array = self._device.zeros(dims, dtype)
            self._device.upload(self._device.address(array), host.ctypes.data, host.nbytes)
            self._arrays[key] = array
        # ONNX Runtime may read it on a stream of its own.
        self._device.wait()
        return self._arrays[key]
