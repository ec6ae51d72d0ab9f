"""Writes the graphs of a model, and the weights of all of them once, into ``weights.bin``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import set_external_data

from seqserve_export.program import programs
from seqserve_export.tracing import trace
from seqserve_model.transformer import Transformer

WEIGHTS = "weights.bin"

# A smaller constant stays in its graph, where shape inference can see it.
_MIN_EXTERNAL_BYTES = 1024
# The operating system maps files by pages: a weight that begins on one is read without a copy.
_PAGE_BYTES = 4096
# Kernels read numbers only from aligned addresses; a search for zeros would match any offset.
_ALIGNMENT_BYTES = 64


def write_graphs(model: Transformer, folder: Path) -> list[str]:
    """Exports all graphs of a model into a folder; returns the names of the files."""
    weights = bytearray()
    files = programs(model)
    for name, program in files.items():
        proto = trace(program)
        _transpose_integer_weights(proto.graph)
        move_weights(proto, weights)
        onnx.save_model(proto, str(folder / name))
    (folder / WEIGHTS).write_bytes(weights)
    return [*files, WEIGHTS]


def _transpose_integer_weights(graph: onnx.GraphProto) -> None:
    """Stores integer weights as torch does, ``[N, K]``, and transposes them at load time.

    The exporter transposes weights with a single reader. Then neither a part of a joined weight nor
    the rows of allowed tokens would match the columns that another graph stores.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in list(graph.node):
        if node.op_type == "MatMulIntegerToFloat" and node.input[1] in constants:
            name = node.input[1]
            tensor = constants.pop(name)
            array = np.ascontiguousarray(onnx.numpy_helper.to_array(tensor).T)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, f"{name}_rows"))
            transpose = onnx.helper.make_node("Transpose", [tensor.name], [name], perm=[1, 0])
            graph.node.insert(0, transpose)


def move_weights(proto: onnx.ModelProto, weights: bytearray) -> None:
    """Moves the constants of a graph to the common file, or refers to equal bytes in it."""
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.nbytes < _MIN_EXTERNAL_BYTES:
            continue
        data = np.ascontiguousarray(array).tobytes()
        offset = _find(weights, data)
        if offset < 0:
            weights.extend(bytes(-len(weights) % _PAGE_BYTES))
            offset = len(weights)
            weights.extend(data)
        tensor.ClearField("float_data")
        tensor.raw_data = data
        set_external_data(tensor, WEIGHTS, offset, len(data))
        tensor.ClearField("raw_data")


def _find(weights: bytearray, data: bytes) -> int:
    """Finds equal bytes, also within a larger weight: a query projection in a joined one."""
    offset = weights.find(data)
    while offset >= 0 and offset % _ALIGNMENT_BYTES:
        offset = weights.find(data, offset + 1)
    return offset
