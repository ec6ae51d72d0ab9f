"""Traces one graph with torch's exporter."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import onnx
import torch
from onnxscript import opset21

from seqserve_export.program import Program

OPSET = 21

_LINEAR = torch.ops.aten.linear.default


def trace(program: Program) -> onnx.ModelProto:
    """Exports one graph, all its weights inside."""
    # It logs missing operators of torchvision, and warns of a deprecation in its own code.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        exported = torch.onnx.export(
            program.module.eval(),
            program.arguments([each.example for each in program.inputs]),
            dynamic_shapes=program.arguments([each.dynamic_shape for each in program.inputs]),
            input_names=[each.name for each in program.inputs],
            output_names=program.outputs,
            opset_version=OPSET,
            custom_translation_table={_LINEAR: _linear},
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    proto = exported.model_proto
    proto.ClearField("metadata_props")
    _clear_traces(proto.graph)
    return proto


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Translates a projection of any rank to one Gemm with the weight as torch stores it.

    The exporter's own translation transposes the weight if x has more than two axes, and then the
    file would hold the same weight twice.
    """
    if len(x.shape) == 2:
        return opset21.Gemm(x, weight, bias, transB=1)
    shape = opset21.Shape(x)
    rows = opset21.Concat(opset21.Constant(value_ints=[-1]), opset21.Shape(x, start=-1), axis=0)
    product = opset21.Gemm(opset21.Reshape(x, rows), weight, bias, transB=1)
    leading = opset21.Slice(
        shape, opset21.Constant(value_ints=[0]), opset21.Constant(value_ints=[-1])
    )
    width = opset21.Shape(weight, start=0, end=1)
    return opset21.Reshape(product, opset21.Concat(leading, width, axis=0))


def _clear_traces(graph: onnx.GraphProto) -> None:
    """Drops the exporter's notes on each node, which contain paths of this machine."""
    graph.ClearField("metadata_props")
    graph.ClearField("value_info")
    for entry in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        entry.ClearField("metadata_props")
        entry.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            # The branches of an If.
            if attribute.HasField("g"):
                _clear_traces(attribute.g)
