"""Joins nodes of norms for which CUDA has one kernel.

The time of a step with few rows grows with the number of its kernels. ONNX Runtime fuses the two
only if rows have a separate axis, which steps do not need.

Source: ONNX Runtime, docs/ContribOperators.md, SkipLayerNormalization;
onnxruntime/core/graph/contrib_ops/contrib_defs.cc, SimplifiedLayerNormalization.
"""

from typing import Any

import numpy as np

from seqserve_server.engine.graph_messages import make_node, put

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
