"""Makes graphs without branches, each with one end, from the graph of a decoder step.

A step chooses its end by conditions that the host reads. A CUDA graph records only kernels, so each
end gets a separate graph, which computes nothing else. For the same reason, biases of positions are
computed from an input of the device, whose length says how many there are, and not cut to a length
that the host reads.
"""

from pathlib import Path
from typing import Any, NamedTuple

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
