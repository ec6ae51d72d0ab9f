"""Writes the graphs of a model, and the weights of all of them once, into ``weights.bin``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from onnxscript import ir

from seqserve_export.program import PROGRAMS, Program
from seqserve_export.tracing import trace
from seqserve_export.weights_file import WeightsFile
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import SCORER, WEIGHTS

# A smaller constant stays in its graph, where shape inference can see it.
_MIN_EXTERNAL_BYTES = 1024


def write_graphs(model: Transformer, folder: Path) -> list[str]:
    """Exports all graphs of a model into a folder; returns the names of the files."""
    with (folder / WEIGHTS).open("w+b") as file:
        weights = WeightsFile(file)
        for name, make in PROGRAMS.items():
            _write_graph(make, model, folder / name, weights)
    return [*PROGRAMS, WEIGHTS]


def _write_graph(
    make: Callable[[Transformer], Program], model: Transformer, path: Path, weights: WeightsFile
) -> None:
    graph = trace(make(model))
    move_weights(graph.graph, weights)
    if path.name != SCORER:  # which keeps every weight under its name, so that a model is restored
        merge_equal_weights(graph.graph)
    onnx.save_model(ir.serde.serialize_model(graph), str(path))


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
