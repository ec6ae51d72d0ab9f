"""Attention over sources that lie one after the other; CUDA has kernels for it, CPUs have none.

An artifact's encoder attends over a padded batch. On CUDA, the kernel for that builds a plan for
each new shape, tens of milliseconds, and shapes of traffic seldom repeat. The kernel for packed
sources needs no plan, and computes nothing for padding.

Source: ONNX Runtime, docs/ContribOperators.md, PackedMultiHeadAttention.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqserve_server.engine.graph_messages import make_node, make_value, needed, put, reads
from seqserve_server.engine.packing import Array, pack

_PADDED, _PACKED, _DOMAIN = "MultiHeadAttention", "PackedMultiHeadAttention", "com.microsoft"
_PAD, _UNPAD = "pad_index", "unpad_index"
_OFFSETS, _STARTS = "token_offset", "cumulative_sequence_length"
_INT32 = 6
_BIAS = 5
"""Input of the node that adds to the logits of attention."""
_MULTIPLE = 8
"""Kernels take biases of rows whose length is a multiple of this."""


def pack_attention(graph: Any) -> None:
    """Lets an encoder graph attend without padding, wherever nothing else needs the padded batch.

    Rotary positions do: they turn queries and keys by their place in it.
    """
    made_by = {name: node for node in graph.nodes for name in node.outputs}
    read_by = {name: node for node in graph.nodes for name in node.inputs}
    replaced: dict[str, list[Any]] = {}
    for node in graph.nodes:
        if node.kind == _PADDED and (parts := _parts(node, made_by, read_by)):
            packed, split, end = parts
            outputs = [f"{name}_packed" for name in split.outputs]
            own_split = make_node("Split", [packed, *split.inputs[1:]], outputs, axis=1)
            own_split.attributes.extend(part for part in split.attributes if part.name != "axis")
            biases = list(node.inputs[_BIAS:])
            attend = make_node(_PACKED, [*outputs, "", _OFFSETS, _STARTS, *biases], end.outputs)
            attend.domain = _DOMAIN
            attend.attributes.extend(node.attributes)
            replaced[end.outputs[0]] = [own_split, attend]
    if not replaced:
        return
    nodes = [new for node in graph.nodes for new in replaced.get(node.outputs[0], [node])]
    nodes = needed(nodes, [value.name for value in graph.outputs])
    read = {name for node in nodes for name in reads(node)}
    own = [make_value(_OFFSETS, _INT32, ["B", "S"]), make_value(_STARTS, _INT32, ["B + 1"])]
    inputs = [*(value for value in graph.inputs if value.name in read), *own]
    put(graph, nodes=nodes, inputs=inputs, known_shapes=[])


def _parts(
    node: Any, made_by: dict[str, Any], read_by: dict[str, Any]
) -> tuple[str, Any, Any] | None:
    """Returns what is padded, the node that splits it, and the node that takes the padding away."""
    split = made_by.get(node.inputs[0])
    if split is None or split.kind != "Split" or list(split.outputs) != list(node.inputs[:3]):
        return None
    pad, flat = made_by.get(split.inputs[0]), read_by.get(node.outputs[0])
    if pad is None or flat is None or list(pad.inputs[1:]) != [_PAD] or flat.kind != "Reshape":
        return None
    end = read_by.get(flat.outputs[0])
    if end is None or list(end.inputs[1:]) != [_UNPAD]:
        return None
    return pad.inputs[0], split, end


def packed_inputs(
    sources: Sequence[Sequence[int]], names: set[str], longest: int = 0
) -> dict[str, Array]:
    """Packs sources into the inputs of an encoder graph.

    Args:
        sources: Token ids, none of them empty.
        names: Inputs of the graph.
        longest: Length of the padded batch; by default that of the longest source, rounded up.

    Returns:
        As :func:`pack`, and ``token_offset`` int32 ``[B, S]``, the places in the flattened padded
        batch of all tokens, then of all padding; ``cumulative_sequence_length`` int32 ``[B + 1]``,
        where each source begins, and where the last one ends.
    """
    longest = longest or -(-max(map(len, sources)) // _MULTIPLE) * _MULTIPLE
    inputs = pack(sources, longest)
    lengths, places = inputs["source_lengths"], inputs[_UNPAD]
    is_padding = np.ones(inputs[_PAD].size, bool)
    is_padding[places] = False
    offsets = np.concatenate([places, np.flatnonzero(is_padding)]).astype(np.int32)
    inputs[_OFFSETS] = offsets.reshape(inputs[_PAD].shape)
    inputs[_STARTS] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return {name: array for name, array in inputs.items() if name in names}
