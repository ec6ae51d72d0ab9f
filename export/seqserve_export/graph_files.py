"""Writes the graphs of a model, and the weights of all of them once, into ``weights.bin``.

Graphs are final: a server checks their hashes and opens them.
"""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from onnxscript import ir

from seqserve_export.candidate_graph import candidate_graphs
from seqserve_export.draft_graph import draft_graph
from seqserve_export.program import PROGRAMS, Program
from seqserve_export.quantization import precision_of
from seqserve_export.tracing import trace
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import CANDIDATES, DECODER, DRAFT, SCORER, WEIGHTS

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
        """Returns the offset of an array's bytes, and writes them if they are not there yet.

        A projection that is a third of an earlier one, joined of query, key and value, is found
        within it.
        """
        data = np.ascontiguousarray(array)
        key = _key(data)
        if key not in self._places:
            self._file.write(bytes(-self._file.tell() % _PAGE_BYTES))
            self._places[key] = offset = self._file.tell()
            self._file.write(_bytes(data))
            step = data.nbytes // _JOINED
            if not (len(data) % _JOINED or step % _ALIGNMENT_BYTES):
                for index, part in enumerate(np.split(data, _JOINED)):
                    self._places.setdefault(_key(part), offset + index * step)
        return self._places[key]


def _key(data: NDArray[Any]) -> bytes:
    return hashlib.sha256(_bytes(data)).digest()


def _bytes(data: NDArray[Any]) -> memoryview:
    return data.reshape(-1).view(np.uint8).data


# A smaller constant stays in its graph, where shape inference can see it.
_MIN_EXTERNAL_BYTES = 1024


def write_graphs(model: Transformer, folder: Path) -> list[str]:
    """Exports all graphs of a model into a folder; returns the names of the files."""
    names: list[str] = []
    with (folder / WEIGHTS).open("w+b") as file:
        weights = WeightsFile(file)
        for name, make in PROGRAMS.items():
            graphs = {name: _traced(make, model, name, weights)}
            if name == DECODER:
                graphs = step_graphs(graphs[name], precision_of(model))
            save_graphs(graphs, folder)
            names += graphs
    return [*names, WEIGHTS]


def step_graphs(decoder: ModelProto, precision: str) -> dict[str, ModelProto]:
    """Makes the graphs that steps run, by file name, from the traced one.

    With half floats, steps gather the weights of candidates themselves, because a GPU holds them.
    Nothing reads drafts, because the last bits of a row depend on the other rows.
    """
    is_exact = precision != "fp16"
    step, candidates = candidate_graphs(decoder, keeps=is_exact)
    draft = draft_graph(decoder) if is_exact else None
    graphs = {DECODER: step, CANDIDATES: candidates, DRAFT: draft}
    return {name: graph for name, graph in graphs.items() if graph is not None}


def save_graphs(graphs: Mapping[str, ModelProto], folder: Path) -> None:
    """Writes graphs into a folder by their names."""
    for name, graph in graphs.items():
        (folder / name).write_bytes(graph.SerializeToString())


def _traced(
    make: Callable[[Transformer], Program], model: Transformer, name: str, weights: WeightsFile
) -> ModelProto:
    graph = trace(make(model))
    move_weights(graph.graph, weights)
    if name != SCORER:  # which keeps every weight under its name, so that a model is restored
        merge_equal_weights(graph.graph)
    model_proto: ModelProto = ir.serde.serialize_model(graph)
    return model_proto


def move_weights(graph: ir.Graph, weights: WeightsFile) -> None:
    """Moves the constants of a graph to the common file; the graph keeps their places in it."""
    for name, value in graph.initializers.items():
        tensor = value.const_value
        assert tensor is not None
        if tensor.nbytes >= _MIN_EXTERNAL_BYTES:
            offset = weights.place(tensor.numpy())
            value.const_value = ir.ExternalTensor(
                WEIGHTS, offset, tensor.nbytes, tensor.dtype, shape=tensor.shape, name=name
            )


def merge_equal_weights(graph: ir.Graph) -> None:
    """Makes one of weights that are the same, as a tied table is: ORT would map each apart."""
    kept: dict[tuple[Any, ...], ir.Value] = {}
    for name, value in list(graph.initializers.items()):
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            assert tensor.shape is not None
            first = kept.setdefault((tensor.offset, tensor.dtype, *tensor.shape), value)
            if first is not value:
                ir.convenience.replace_all_uses_with(value, first)
                del graph.initializers[name]
