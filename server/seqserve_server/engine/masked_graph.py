"""Makes a step that masks logits before it branches, from the graph of an earlier release.

There only the branch of all options masked them, in a copy of all logits. So a step with masks took
that branch, whatever else its rows wanted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqserve_server.engine.graph_messages import MODEL, copied, graphs_of, rename

_MASK = "ScatterElements"
_MASKED_TOKENS = "bias_tokens"


def masked_graph(path: Path) -> bytes | None:
    """Makes the graph from a ``decoder.onnx`` that has been checked.

    Returns:
        None where no branch masks.
    """
    model = MODEL.FromString(path.read_bytes())
    _, *branches = graphs_of(model.graph)
    for branch in branches:
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
    [first] = copied([mask])
    first.inputs[0], first.outputs[0] = unmasked, logits
    first.ClearField("name")  # names of nodes differ within a graph only
    branch.nodes.remove(mask)
    rename(branch.nodes, masked, logits)
    choice = graph.nodes.pop()
    graph.nodes.extend([first, choice])
