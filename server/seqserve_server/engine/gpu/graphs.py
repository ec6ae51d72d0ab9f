"""Changes graphs for CUDA: a decoder step gets one graph for each end, and norms one kernel.

A step chooses its end by conditions that the host reads. A CUDA graph records only kernels, so each
end gets a separate graph without branches, which computes nothing else. For the same reason, biases
of positions are computed from an input of the device, whose length says how many there are, and not
cut to a length that the host reads.

The time of a step with few rows grows with the number of its kernels. ONNX Runtime fuses a norm
with the sum before it only if rows have a separate axis, which steps do not need.

Source: ONNX Runtime, docs/ContribOperators.md, SkipLayerNormalization;
onnxruntime/core/graph/contrib_ops/contrib_defs.cc, SimplifiedLayerNormalization.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqserve_server.engine.graph_messages import (
    MODEL,
    make_node,
    make_value,
    needed,
    put,
    reads,
    rename,
)


class End(NamedTuple):
    """One end of a step."""

    branches: tuple[str, ...]
    """The branches that lead to it, from the outermost one on."""
    outputs: tuple[str, ...]
    """The outputs that it computes; its others are always empty."""


PLAIN = End(("else_branch",), ("next_tokens",))
"""The next tokens alone."""
CHOSEN = End(("then_branch", "then_branch"), ("next_tokens", "log_probabilities"))
"""The next tokens and their log-probabilities."""
SCORED = End(
    ("then_branch", "then_branch"),
    ("next_tokens", "log_probabilities", "top_tokens", "top_log_probabilities"),
)
"""The next tokens, top tokens, and their log-probabilities."""

TARGET_POSITIONS = "target_positions"
"""Input with the positions 0, 1, .. of keys that attention with biases reads, int64 ``[K]``."""

_CHOICE = "If"
_ATTENTION, _BIAS = "GroupQueryAttention", 10
"""Attention over caches, and its input that adds to the logits."""
_CUT, _DISTANCE, _INT64 = "Slice", "Sub", 7
_BEST = "next_tokens"
_CACHE = "new_"


def unbranched_graph(path: Path, end: End) -> bytes:
    """Makes the graph of an end from a ``decoder.onnx`` that has been checked."""
    model = MODEL.FromString(path.read_bytes())
    graph = model.graph
    nodes, tensors = list(graph.nodes), list(graph.tensors)
    *stem, choice = nodes
    names = list(choice.outputs)
    for branch in end.branches:
        assert choice.kind == _CHOICE
        [part] = [part.graph for part in choice.attributes if part.name == branch]
        tensors += part.tensors
        stem += part.nodes
        given = [value.name for value in part.outputs]
        *stem, choice = stem
    nodes = [*stem, choice]
    for before, after in zip(given, names, strict=True):
        rename(nodes, before, after)
    for node in nodes:
        node.ClearField("name")  # those of two branches may be alike
    outputs = [
        value
        for value in graph.outputs
        if value.name in end.outputs or value.name.startswith(_CACHE)
    ]
    if end is not SCORED:
        nodes = _with_one_search(nodes)
    positions = _uncut_biases(nodes)
    nodes = needed(nodes, [value.name for value in outputs])
    read = {name for node in nodes for name in reads(node)}
    put(
        graph,
        nodes=nodes,
        tensors=[tensor for tensor in tensors if tensor.name in read],
        inputs=[*(value for value in graph.inputs if value.name in read), *positions],
        outputs=outputs,
        known_shapes=[],
    )
    return model.SerializeToString()  # type: ignore[no-any-return]


def _uncut_biases(nodes: list[Any]) -> list[Any]:
    """Computes biases for as many positions as are given; returns the input that gives them."""
    made_by = {name: node for node in nodes for name in node.outputs}
    for node in nodes:
        bias = node.inputs[_BIAS] if node.kind == _ATTENTION and len(node.inputs) > _BIAS else ""
        cut = made_by.get(bias)
        if cut is None or cut.kind != _CUT:
            continue
        distance = made_by[cut.inputs[0]]
        while distance.kind != _DISTANCE:
            # A table comes before what is looked up in it.
            *_, name = (name for name in distance.inputs if name in made_by)
            distance = made_by[name]
        distance.inputs[1] = TARGET_POSITIONS
        node.inputs[_BIAS] = cut.inputs[0]
    has_positions = any(TARGET_POSITIONS in node.inputs for node in nodes)
    return [make_value(TARGET_POSITIONS, _INT64, ["K"])] if has_positions else []


def _with_one_search(nodes: list[Any]) -> list[Any]:
    """Lets one node find the best tokens. A CPU finds them sooner by the maxima of blocks."""
    [maxima] = [node for node in nodes if node.kind == "ReduceMax"]
    [blocks] = [node for node in nodes if maxima.inputs[0] in node.outputs]
    best = make_node("ArgMax", [blocks.inputs[0]], [_BEST], axis=1, keepdims=1)
    return [best if _BEST in node.outputs else node for node in nodes]


_SUM, _NORM, _JOINED, _DOMAIN = (
    "Add",
    "LayerNormalization",
    "SkipLayerNormalization",
    "com.microsoft",
)
_EPSILON = "epsilon"
_PARTS = ("Pow", "ReduceMean", "Add", "Sqrt", "Reciprocal", "Mul", "Mul")
"""Nodes of an RMS norm. Each reads the one before; the last one multiplies by the weights."""
_RMS_NORM = "SimplifiedLayerNormalization"


def fuse_norms(graph: Any) -> None:
    """Joins the parts of each RMS norm, and each sum of two values with the norm that reads it."""
    _fuse_rms_norms(graph)
    inner = {name for node in graph.nodes for name in node.outputs}
    sums = {
        node.outputs[0]: node
        for node in graph.nodes
        if node.kind == _SUM and inner.issuperset(node.inputs)
    }
    joined: dict[str, Any] = {}
    kept = []
    for node in graph.nodes:
        total = node.inputs[0] if node.kind == _NORM else ""
        if total in sums and total not in joined:
            joined[total] = _joined(sums[total], node)
        else:
            kept.append(node)
    # In the place of the sum, which others may read before the norm does.
    put(graph, nodes=[joined.get(node.outputs[0], node) for node in kept])


def _joined(total: Any, norm: Any) -> Any:
    inputs = [*total.inputs, *norm.inputs[1:]]
    node = make_node(_JOINED, inputs, [norm.outputs[0], "", "", total.outputs[0]])
    node.domain = _DOMAIN
    node.attributes.extend(part for part in norm.attributes if part.name == _EPSILON)
    return node


def _fuse_rms_norms(graph: Any) -> None:
    readers: dict[str, list[Any]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    numbers = {tensor.name: tensor.raw for tensor in graph.tensors}
    joined: dict[str, Any] = {}
    dropped: set[str] = set()
    for node in graph.nodes:
        parts = _parts_from(node, readers)
        if parts is None or parts[2].inputs[1] not in numbers:
            continue
        [epsilon] = np.frombuffer(numbers[parts[2].inputs[1]], np.float32)
        x, (*inner, last) = node.inputs[0], parts
        inputs = [x, *(name for name in last.inputs if name != inner[-1].outputs[0])]
        norm = make_node(_RMS_NORM, inputs, last.outputs, axis=-1, epsilon=float(epsilon))
        joined[last.outputs[0]] = norm
        dropped |= {part.outputs[0] for part in inner}
    nodes = [joined.get(n.outputs[0], n) for n in graph.nodes if n.outputs[0] not in dropped]
    put(graph, nodes=nodes)


def _parts_from(node: Any, readers: dict[str, list[Any]]) -> list[Any] | None:
    parts = [node]
    for kind in _PARTS[1:]:
        following = readers.get(parts[-1].outputs[0], [])
        if parts[-1].kind != _PARTS[len(parts) - 1] or len(following) != 1:
            return None
        parts += following
        if parts[-1].kind != kind:
            return None
    is_one_value = node.inputs[0] in parts[5].inputs
    return parts if is_one_value else None
