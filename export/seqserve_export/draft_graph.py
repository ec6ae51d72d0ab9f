"""Makes a graph that reads many tokens of one target at once, from the graph of a decoder step.

A step reads one token in each of R rows. Here the R tokens follow each other in one target: row i
is at the place of token i. Every layer first adds the keys and values of all of them to those read
before, which then are the cache of each row. A row attends no further than its own token, so each
computes what a step of that token alone computes, by the same nodes: the same bits.

Source: ONNX Runtime, docs/ContribOperators.md.
"""

from collections.abc import Iterator
from typing import Any

from onnx import ModelProto, NodeProto, ValueInfoProto
from onnx.helper import make_node

from seqserve_export.graph_edits import dims_of, replace
from seqserve_server.engine.step import READ

_ATTENTION = "GroupQueryAttention"
_ROTARY_INPUTS = slice(7, 9)
_SCALE_INPUTS = slice(12, 14)


def draft_graph(decoder: ModelProto) -> ModelProto | None:
    """Makes the graph from the graph of a step with all its options.

    It has the inputs of a step of R rows, but ``self_`` caches have the entries read before, ``[1,
    H, P, D]``, and ``cross_`` and ``last_`` caches one row. It has the outputs of the step, with
    the new entries of caches instead of caches.

    Returns:
        None where the operator of the step changes keys before it keeps them, or where the decoder
        is recurrent.
    """
    model = ModelProto()
    model.CopyFrom(decoder)
    graph = model.graph
    caches = [value for value in graph.input if value.name.startswith("self_")]
    attentions = [node for node in graph.node if node.op_type == _ATTENTION]
    changes = (_ROTARY_INPUTS, _SCALE_INPUTS)
    if not caches or any(any(node.input[part]) for node in attentions for part in changes):
        return None
    nodes = list(_shapes(caches[0]))
    for node in graph.node:
        if node.op_type == _ATTENTION:
            nodes += _with_rows(node)
        nodes.append(node)
    outputs = [value for value in graph.output if not value.name.startswith("new_")]
    for cache in caches:
        output = ValueInfoProto(name=READ + cache.name, type=cache.type)
        output.type.tensor_type.ClearField("shape")
        outputs.append(output)
    for value in graph.input:
        if value.name.startswith(("self_", "cross_", "last_")):
            _set_size(dims_of(value)[0], 1)
            if value in caches:
                dims_of(value)[2].dim_param = "tokens_before"
    replace(graph, node=nodes, output=outputs, value_info=[])
    return model


def _set_size(dim: Any, size: int) -> None:
    dim.Clear()
    dim.dim_value = size


def _shapes(cache: ValueInfoProto) -> Iterator[NodeProto]:
    """Makes the nodes that all layers share: shapes that caches get."""
    heads, size = (dims_of(cache)[axis].dim_value for axis in (1, 3))
    yield make_node("Constant", [], ["draft_heads"], value_ints=[1, -1, heads, size])
    yield make_node("Shape", ["tokens"], ["draft_rows"], start=0, end=1)
    for axes in (3, 4):
        yield make_node("Constant", [], [f"draft_ones_{axes}"], value_ints=[1] * (axes - 1))
        parts = ["draft_rows", f"draft_ones_{axes}"]
        yield make_node("Concat", parts, [f"draft_rows_{axes}"], axis=0)


def _with_rows(attention: NodeProto) -> Iterator[NodeProto]:
    """Makes the nodes before an attention, and lets it read what they give."""
    packed, *_ = inputs = attention.input
    caches = inputs[3:5]
    if caches[0].startswith("cross_"):
        for index in range(1, 5):
            yield _repeated(inputs, index, axes=3 if index < 3 else 4)
        return
    parts = [f"{part}_of_{packed}" for part in ("draft_query", "draft_key", "draft_value")]
    yield make_node("Split", [packed], parts, axis=-1, num_outputs=3)
    for index, (part, cache) in enumerate(zip(parts[1:], caches, strict=True), 3):
        yield make_node("Reshape", [part, "draft_heads"], [f"{part}_heads"])
        yield make_node("Transpose", [f"{part}_heads"], [READ + cache], perm=[0, 2, 1, 3])
        yield make_node("Concat", [cache, READ + cache], [f"all_{cache}"], axis=2)
        inputs[index] = f"all_{cache}"
        yield _repeated(inputs, index, axes=4)


def _repeated(inputs: Any, index: int, axes: int) -> NodeProto:
    """Makes a node that repeats an input for each row, which the input becomes."""
    name = inputs[index]
    inputs[index] = f"rows_of_{name}"
    return make_node("Expand", [name, f"draft_rows_{axes}"], [inputs[index]])
