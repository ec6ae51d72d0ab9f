"""Makes a step that masks logits before it branches, from the graph of an earlier release.

There only the branch of all options masked them, in a copy of all logits. So a step with masks took
that branch, whatever else its rows wanted.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from seqserve_server.engine.graph_messages import MODEL

_MASK = "ScatterElements"
_MASKED_TOKENS = "bias_tokens"


def masked_graph(path: Path) -> bytes | None:
    """Makes the graph from a ``decoder.onnx`` that has been checked.

    Returns:
        None where no branch masks, and where the file holds no graph.
    """
    try:
        model = MODEL.FromString(path.read_bytes())
    except (OSError, DecodeError):
        return None
    for branch in _branches(model.graph):
        for node in branch.nodes:
            if node.kind == _MASK and node.inputs[1] == _MASKED_TOKENS:
                _move(node, branch, model.graph)
                return model.SerializeToString()  # type: ignore[no-any-return]
    return None


def _move(mask: Any, branch: Any, graph: Any) -> None:
    """Moves a mask out of its branch, in front of the node that chooses a branch: the last one.

    All branches then read what it gives by the name that the logits had.
    """
    logits, [masked] = mask.inputs[0], mask.outputs
    unmasked = f"unmasked_{logits}"
    for node in graph.nodes:
        node.outputs[:] = [unmasked if name == logits else name for name in node.outputs]
    for inner in (branch, *_branches(branch)):
        for node in inner.nodes:
            node.inputs[:] = [logits if name == masked else name for name in node.inputs]
    first = type(mask)()
    first.CopyFrom(mask)
    first.inputs[0], first.outputs[0] = unmasked, logits
    first.ClearField("name")  # names of nodes differ within a graph only
    branch.nodes.remove(mask)
    choice = graph.nodes.pop()
    graph.nodes.extend([first, choice])


def _branches(graph: Any) -> Iterator[Any]:
    """Lists the graphs within a graph, at any depth."""
    for node in graph.nodes:
        for attribute in node.attributes:
            if attribute.HasField("graph"):
                yield attribute.graph
                yield from _branches(attribute.graph)
