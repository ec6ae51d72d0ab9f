"""Makes a graph that reads many tokens of one target at once, from the graph of a decoder step.

A step reads one token in each of R rows. Here the R tokens follow each other in one target: row i
is at the place of token i. Every layer first adds the keys and values of all of them to those read
before, which then are the cache of each row. A row attends no further than its own token, so each
computes what a step of that token alone computes, by the same nodes: the same bits.

Source: ONNX Runtime, docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqserve_server.artifact.manifest import Architecture
from seqserve_server.engine.graph_messages import DIM, MODEL, VALUE, make_node, put

READ = "read_"
"""Before the name of a cache: the output of its new entries, ``[1, H, R, D]``."""

_ATTENTION = "GroupQueryAttention"
_ROTARY_INPUTS = slice(7, 9)
_SCALE_INPUTS = slice(12, 14)


def draft_graph(path: Path, shape: Architecture) -> bytes | None:
    """Makes the graph from a ``decoder.onnx`` whose weights have been checked.

    Its inputs are those of a step of R rows, but ``self_`` caches have the entries read before,
    ``[1, H, P, D]``, and ``cross_`` and ``last_`` caches one row. Its outputs are those of the
    step; in place of caches it gives their new entries.

    Returns:
        None where the operator of the step changes keys before it keeps them, or where the decoder
        is recurrent.
    """
    model = MODEL.FromString(path.read_bytes())
    graph = model.graph
    attentions = [node for node in graph.nodes if node.kind == _ATTENTION]
    changes = (_ROTARY_INPUTS, _SCALE_INPUTS)
    if shape.cell_width or any(any(node.inputs[part]) for node in attentions for part in changes):
        return None
    nodes = list(_common(shape))
    for node in graph.nodes:
        if node.kind == _ATTENTION:
            nodes += _with_rows(node)
        nodes.append(node)
    caches = [value for value in graph.inputs if value.name.startswith("self_")]
    outputs = [value for value in graph.outputs if not value.name.startswith("new_")]
    for cache in caches:
        output = VALUE(name=READ + cache.name, type=cache.type)
        output.type.tensor.ClearField("shape")
        outputs.append(output)
    for value in graph.inputs:
        if value.name.startswith(("self_", "cross_", "last_")):
            dims = value.type.tensor.shape.dims
            dims[0].CopyFrom(DIM(size=1))
            if value in caches:
                dims[2].CopyFrom(DIM(name="tokens_before"))
    put(graph, nodes=nodes, outputs=outputs, known_shapes=[])
    return model.SerializeToString()  # type: ignore[no-any-return]


def _common(shape: Architecture) -> Iterator[Any]:
    """Makes the nodes that all layers share: shapes that caches get."""
    yield make_node(
        "Constant", [], ["draft_heads"], value_ints=[1, -1, shape.heads, shape.head_size]
    )
    yield make_node("Shape", ["tokens"], ["draft_rows"], start=0, end=1)
    for axes in (3, 4):
        yield make_node("Constant", [], [f"draft_ones_{axes}"], value_ints=[1] * (axes - 1))
        parts = ["draft_rows", f"draft_ones_{axes}"]
        yield make_node("Concat", parts, [f"draft_rows_{axes}"], axis=0)


def _with_rows(attention: Any) -> Iterator[Any]:
    """Makes the nodes before an attention, and lets it read what they give."""
    packed, *_ = inputs = attention.inputs
    caches = inputs[3:5]
    if caches[0].startswith("cross_"):
        for index in range(1, 5):
            axes = 3 if index < 3 else 4
            yield _expanded(inputs, index, axes)
        return
    parts = [f"{part}_of_{packed}" for part in ("draft_query", "draft_key", "draft_value")]
    yield make_node("Split", [packed], parts, axis=-1, num_outputs=3)
    for index, (part, cache) in enumerate(zip(parts[1:], caches, strict=True), 3):
        yield make_node("Reshape", [part, "draft_heads"], [f"{part}_heads"])
        yield make_node("Transpose", [f"{part}_heads"], [READ + cache], perm=[0, 2, 1, 3])
        yield make_node("Concat", [cache, READ + cache], [f"all_{cache}"], axis=2)
        inputs[index] = f"all_{cache}"
        yield _expanded(inputs, index, 4)


def _expanded(inputs: Any, index: int, axes: int) -> Any:
    """Makes a node that repeats an input for each row, which the input becomes."""
    name = inputs[index]
    inputs[index] = f"rows_of_{name}"
    return make_node("Expand", [name, f"draft_rows_{axes}"], [inputs[index]])
