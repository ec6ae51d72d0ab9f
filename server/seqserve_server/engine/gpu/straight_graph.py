"""Makes graphs without branches, each with one end, from the graph of a decoder step.

A step chooses its end by conditions that the host reads. A CUDA graph records kernels alone, so for
it each end gets a graph of its own, which computes nothing else.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from seqserve_server.engine.graph_messages import MODEL, make_node, needed, put, reads, rename


class End(NamedTuple):
    """One end of a step."""

    branches: tuple[str, ...]
    """The branches that lead to it, from the outermost one on."""
    outputs: tuple[str, ...]
    """What it computes; its other outputs are always empty."""


PLAIN = End(("else_branch",), ("next_tokens",))
"""The next tokens alone."""
CHOSEN = End(("then_branch", "then_branch"), ("next_tokens", "log_probabilities"))
"""The next tokens and their log-probabilities."""
SCORED = End(
    ("then_branch", "then_branch"),
    ("next_tokens", "log_probabilities", "top_tokens", "top_log_probabilities"),
)
"""The next tokens, top tokens, and their log-probabilities."""

_CHOICE = "If"
_BEST = "next_tokens"
_CACHE = "new_"


def straight_graph(path: Path, end: End) -> bytes:
    """Makes the graph of an end from a ``decoder.onnx`` that has been checked.

    Args:
        path: The file.
        end: Which one.
    """
    model = MODEL.FromString(path.read_bytes())
    graph = model.graph
    nodes, tensors = list(graph.nodes), list(graph.tensors)
    *stem, choice = nodes
    names = list(choice.outputs)
    for branch in end.branches:
        assert choice.kind == _CHOICE
        part = _branch(choice, branch)
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
    nodes = needed(nodes, [value.name for value in outputs])
    read = {name for node in nodes for name in reads(node)}
    put(
        graph,
        nodes=nodes,
        tensors=[tensor for tensor in tensors if tensor.name in read],
        inputs=[value for value in graph.inputs if value.name in read],
        outputs=outputs,
        known_shapes=[],
    )
    return model.SerializeToString()  # type: ignore[no-any-return]


def _with_one_search(nodes: list[Any]) -> list[Any]:
    """Lets one node find the best tokens. A CPU finds them sooner by the maxima of blocks."""
    [maxima] = [node for node in nodes if node.kind == "ReduceMax"]
    [blocks] = [node for node in nodes if maxima.inputs[0] in node.outputs]
    best = make_node("ArgMax", [blocks.inputs[0]], [_BEST], axis=1, keepdims=1)
    return [best if _BEST in node.outputs else node for node in nodes]


def _branch(choice: Any, name: str) -> Any:
    [branch] = [part.graph for part in choice.attributes if part.name == name]
    return branch
