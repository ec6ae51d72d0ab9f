"""The weights of an artifact in the memory of a GPU, each of them once.

The graphs of a model, and the graphs that are made of its steps, share most weights, or parts of
them. Left to itself, ONNX Runtime copies them to the GPU for every graph.
"""

import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.gpu.device import Device
from seqserve_server.engine.graph_messages import NUMPY_TYPES, graphs_of


class Weights:
    """The tensors of one file."""

    def __init__(self, path: Path, device: Device) -> None:
        """Copies the file, which has been checked.

        Raises:
            MemoryError: It does not fit into the memory of the GPU.
        """
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._data = device.zeros((len(data),), np.dtype(np.uint8))
            host = np.frombuffer(data, np.uint8)
            device.upload(device.address(self._data), host.ctypes.data, len(data))
            device.wait()
            del host  # or the file could not be closed

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
                    value = ort.OrtValue.from_dlpack(self._tensor(tensor))
                    options.add_initializer(tensor.name, value)
                    shared.append(value)
        return shared

    def _tensor(self, tensor: Any) -> Any:
        entries = {entry.key: entry.value for entry in tensor.external}
        begin, dims = int(entries.get("offset", 0)), tuple(tensor.dims)
        dtype = np.dtype(NUMPY_TYPES[tensor.kind])
        end = begin + math.prod(dims) * dtype.itemsize
        return self._data[begin:end].view(dtype).reshape(dims)
