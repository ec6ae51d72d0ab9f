"""Joins each sum of a graph and the norm that follows it, for which CUDA has one kernel.

A step of few rows takes as long as its kernels are many. ONNX Runtime joins the two only where rows
have an axis of their own, which steps do without.

Source: ONNX Runtime, docs/ContribOperators.md, SkipLayerNormalization.
"""

from __future__ import annotations

from typing import Any

from seqserve_server.engine.graph_messages import make_node, put

_SUM, _NORM, _JOINED, _DOMAIN = (
    "Add",
    "LayerNormalization",
    "SkipLayerNormalization",
    "com.microsoft",
)
_EPSILON = "epsilon"


def fuse_norms(graph: Any) -> None:
    """Puts one node in the place of each sum of two values that a norm reads."""
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
