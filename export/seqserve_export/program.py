"""From modules to files: traces each graph and stores the weights of all of them once."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import torch
from onnx import TensorProto
from onnxscript import opset21
from torch import Tensor, nn
from torch.export import Dim

from seqserve_export.graphs import DecoderGraph, EncoderGraph, ScorerGraph
from seqserve_export.quantization import cache_scales
from seqserve_export.shortlist import GROUP
from seqserve_model.transformer import Transformer

OPSET = 21
WEIGHTS = "weights.bin"

# Below this many bytes a constant stays in its graph, where shape inference can see it.
_LEAST_EXTERNAL = 1024
# The operating system maps files by pages; a weight that begins on one is read without a copy.
_PAGE = 4096
# Zeros are found anywhere, but kernels read numbers only where a number may begin.
_ALIGNMENT = 64


class Input(NamedTuple):
    """One input of a graph."""

    name: str
    example: Tensor
    free: tuple[int, ...] = ()
    """Axes whose size is known only when the graph runs."""

    @property
    def shape(self) -> dict[int, Any]:
        """Gives the free axes as torch's exporter takes them."""
        return dict.fromkeys(self.free, Dim.DYNAMIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One graph: its module, what that takes, and what it gives."""

    module: nn.Module
    inputs: list[Input]
    caches: list[list[Input]] = field(default_factory=list)
    """Of each layer; the module takes them as lists, after the other inputs."""
    outputs: list[str]

    @property
    def names(self) -> list[str]:
        """Gives the names of all inputs."""
        return [each.name for each in (*self.inputs, *chain.from_iterable(self.caches))]

    def arranged(self, part: Callable[[Input], Any]) -> tuple[Any, ...]:
        """Gives a part of each input, in the form in which the module takes the inputs."""
        layers = [[part(each) for each in layer] for layer in self.caches]
        return (*map(part, self.inputs), *([layers] if layers else ()))


def programs(model: Transformer) -> dict[str, Program]:
    """Lists the graphs of an artifact by file name."""
    return {
        "encoder.onnx": _encoder(model),
        "decoder.onnx": _decoder(model),
        "scorer.onnx": _scorer(model),
    }


_LINEAR = torch.ops.aten.linear.default


def _int32(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32)


def _int64(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.int64)


def _encoder(model: Transformer) -> Program:
    return Program(
        module=EncoderGraph(model),
        inputs=[
            Input("source", _int64(16), (0,)),
            Input("positions", _int64(16), (0,)),
            Input("source_lengths", _int32(7, 5, 4), (0,)),
            Input("pad_index", _int64(3, 7), (0, 1)),
            Input("unpad_index", _int64(16), (0,)),
        ],
        outputs=[
            f"{kind}_{part}_{layer}"
            for layer in range(model.config.decoder_layers)
            for part in ("key", "value")
            for kind in ("cross", "last")
        ],
    )


def _decoder(model: Transformer) -> Program:
    rows = 2
    layers = range(model.config.decoder_layers)
    return Program(
        module=DecoderGraph(model),
        inputs=[
            Input("tokens", _int64(rows, 1), (0,)),
            Input("lengths", _int32(3, 4), (0,)),
            Input("max_length", _int32(5)),
            Input("source_last_index", _int32(6, 7), (0,)),
            Input("max_source_length", _int32(8)),
            Input("bias_tokens", _int64(rows, 3), (0, 1)),
            Input("bias_values", torch.zeros(rows, 3), (0, 1)),
            Input("return_logprobs", torch.tensor(True)),
            Input("top_k", _int64(4), (0,)),
            Input("num_logits", _int64(5), (0,)),
            Input("allowed_tokens", _int64(2, GROUP), (0,)),
            Input("projected_rows", torch.arange(rows), (0,)),
        ],
        caches=[_caches(model, rows, layer) for layer in layers],
        outputs=[
            "next_tokens",
            "log_probabilities",
            "top_tokens",
            "top_log_probabilities",
            "logits",
            "allowed_logits",
            *(
                f"new_{kind}_{part}_{layer}"
                for layer in layers
                for kind in ("self", "cross")
                for part in ("key", "value")
            ),
        ],
    )


def _caches(model: Transformer, rows: int, layer: int) -> list[Input]:
    config = model.config
    are_rounded = cache_scales(model.decoder_layers[0].self_attention) is not None

    def cache(places: int) -> Tensor:
        kept = torch.int8 if are_rounded else torch.float32
        return torch.zeros(rows, config.heads, places, config.head_size, dtype=kept)

    kinds = (
        ("self", cache(config.max_target_length + 1), (0,)),
        ("cross", cache(16), (0, 2)),
        ("last", torch.zeros(rows, 1, config.width), (0,)),
    )
    return [
        # A tensor of its own: one that came twice would be taken for one input.
        Input(f"{kind}_{part}_{layer}", example.clone(), free)
        for kind, example, free in kinds
        for part in ("key", "value")
    ]


def _scorer(model: Transformer) -> Program:
    return Program(
        module=ScorerGraph(model),
        inputs=[
            Input("source", _int64(2, 7), (0, 1)),
            Input("source_lengths", _int32(7, 5), (0,)),
            Input("target", _int64(2, 6), (0, 1)),
        ],
        outputs=[
            "log_probabilities",
            "encoder_attention",
            "decoder_attention",
            "cross_attention",
        ],
    )


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Translates a projection of any rank to one Gemm, whose weight stays as torch lays it out.

    The exporter's own translation transposes the weight where there are more than two axes, and
    then the same weight would be stored a second time.
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


def trace(program: Program) -> onnx.ModelProto:
    """Exports one graph with torch's exporter."""
    # It announces operators of torchvision that it did not find, and a deprecation of its own.
    logging.getLogger("torch.onnx._internal.exporter._registration").setLevel(logging.ERROR)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        exported = torch.onnx.export(
            program.module.eval(),
            program.arranged(lambda each: each.example),
            dynamic_shapes=program.arranged(lambda each: each.shape),
            input_names=program.names,
            output_names=program.outputs,
            opset_version=OPSET,
            custom_translation_table={_LINEAR: _linear},
            dynamo=True,
            verbose=False,
        )
    assert exported is not None
    return _without_traces(exported.model_proto)


def _without_traces(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Drops the exporter's notes on each node, which name files of the machine it ran on."""
    proto.ClearField("metadata_props")
    _forget_traces(proto.graph)
    return proto


def _forget_traces(graph: onnx.GraphProto) -> None:
    graph.ClearField("metadata_props")
    graph.ClearField("value_info")
    for entry in (*graph.node, *graph.initializer, *graph.input, *graph.output):
        entry.ClearField("metadata_props")
        entry.ClearField("doc_string")
    for node in graph.node:
        for attribute in node.attribute:
            # The branches of an If.
            if attribute.HasField("g"):
                _forget_traces(attribute.g)


def write_graphs(model: Transformer, folder: Path) -> list[str]:
    """Exports all graphs of a model into a folder.

    Returns:
        Names of the files written.
    """
    weights = bytearray()
    files = programs(model)
    for name, program in files.items():
        proto = trace(program)
        _unfold(proto.graph)
        _move_weights(proto, weights)
        onnx.save_model(proto, str(folder / name))
    (folder / WEIGHTS).write_bytes(weights)
    return [*files, WEIGHTS]


def _unfold(graph: onnx.GraphProto) -> None:
    """Lays weights of integers out as torch does, and has them transposed as the graph is loaded.

    The exporter transposes those that nothing else reads. Then a part of a packed weight would not
    be found in it, nor the rows of words where another graph has the columns.
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


def _move_weights(proto: onnx.ModelProto, weights: bytearray) -> None:
    """Moves the constants of a graph to the common file, or points to where they already are."""
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.nbytes < _LEAST_EXTERNAL:
            continue
        data = np.ascontiguousarray(array).tobytes()
        offset = _find(weights, data)
        if offset < 0:
            weights.extend(bytes(-len(weights) % _PAGE))
            offset = len(weights)
            weights.extend(data)
        _point(tensor, offset, len(data))


def _find(weights: bytearray, data: bytes) -> int:
    """Finds data also as a part of other: the projection of a query within a packed one."""
    offset = weights.find(data)
    while offset >= 0 and offset % _ALIGNMENT:
        offset = weights.find(data, offset + 1)
    return offset


def _point(tensor: TensorProto, offset: int, length: int) -> None:
    tensor.ClearField("raw_data")
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", WEIGHTS), ("offset", offset), ("length", length)):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, str(value)
