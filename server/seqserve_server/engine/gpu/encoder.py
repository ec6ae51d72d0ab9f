"""The encoder on a GPU: small groups of sources are encoded by recorded CUDA graphs.

The host takes 2 ms to start the kernels of an encoding, and a GPU often less to run them. A
recorded graph starts them in one call, but has one shape. So groups are filled up with sources of
no meaning to one of a few shapes, which are recorded before the first request.

An artifact's encoder attends over a padded batch. On CUDA, the kernel for that builds a plan for
each new shape, tens of milliseconds, and shapes of traffic seldom repeat. The kernel for packed
sources needs no plan, and computes nothing for padding; CPUs have none.

Source: ONNX Runtime, docs/ContribOperators.md, PackedMultiHeadAttention.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.gpu.device import NOT_RECORDED, Device, recorded, run_options
from seqserve_server.engine.graph_messages import make_node, make_value, needed, put, reads
from seqserve_server.engine.packing import Array, CrossKV, pack, starts_of

_TOKENS_A_SOURCE = 8
"""Tokens a source in a shape; groups of shorter sources take a larger shape."""
_FEWEST_TOKENS, _MOST_TOKENS = 32, 1024
"""Tokens of the recorded shapes. With more tokens, the GPU takes longer than the host."""

_log = logging.getLogger(__name__)


class Shape(NamedTuple):
    """Shape of a group of sources."""

    tokens: int
    sources: int
    longest: int
    """Tokens of the longest source, rounded up."""


class _Plan(NamedTuple):
    binding: Any
    options: ort.RunOptions
    inputs: dict[str, Any]
    packed: Any
    last: Any


class DeviceEncoder:
    """Encodes sources; its work is queued, not done, when it returns."""

    def __init__(
        self, session: ort.InferenceSession, device: Device, width: int, dtype: np.dtype[Any]
    ) -> None:
        """Takes a session that may record, and the width and type of keys and values."""
        self._session, self._device = session, device
        self._names = {entry.name for entry in session.get_inputs()}
        self._outputs = session.get_outputs()
        self._width, self._dtype = width, dtype
        self._unrecorded = run_options(NOT_RECORDED)
        self._plans: dict[Shape, _Plan] = {}
        self._most = 0
        """Most tokens of a source."""
        self._thread = 0
        """That has recorded them: ONNX Runtime plays a recording back in no other one."""

    def record(self, longest: int, end_token: int) -> None:
        """Records all shapes up to the longest source, in the thread that will encode."""
        self._plans, self._thread, self._most = {}, threading.get_ident(), longest
        for shape in shapes(longest):
            sources = _filled([], shape, end_token, longest)
            try:
                self._plans[shape] = self._plan(sources, shape)
            except Exception:
                # Its groups are encoded as they are, which takes longer.
                _log.warning("an encoding of %s could not be recorded", shape, exc_info=True)
                self._device.end_recording()

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        """Encodes sources of any lengths together."""
        starts = starts_of(sources)
        shape = shape_of(starts[-1], len(sources), max(map(len, sources)), self._most)
        plan = self._plans.get(shape) if shape else None
        if shape is None or plan is None or threading.get_ident() != self._thread:
            return self._encode_as_they_are(sources, starts)
        filled = _filled(sources, shape, sources[0][-1], self._most)
        for name, array in packed_inputs(filled, self._names, shape.longest).items():
            self._send(array, plan.inputs[name])
        self._session._sess.run_with_iobinding(plan.binding, plan.options)
        with self._device:
            # The next group of this shape overwrites them.
            packed, last = plan.packed[:, : starts[-1]].copy(), plan.last[:, : len(sources)].copy()
        return CrossKV(packed, last, starts)

    def _encode_as_they_are(self, sources: Sequence[Sequence[int]], starts: list[int]) -> CrossKV:
        binding = self._session.io_binding()
        # The binding reads them by their addresses.
        inputs = packed_inputs(sources, self._names)
        for name, array in inputs.items():
            binding.bind_cpu_input(name, array)
        packed, last = self._bind_outputs(binding, starts[-1], len(sources))
        self._session.run_with_iobinding(binding, self._unrecorded)
        return CrossKV(packed, last, starts)

    def _plan(self, sources: Sequence[Sequence[int]], shape: Shape) -> _Plan:
        binding, inputs = self._session.io_binding(), {}
        for name, array in packed_inputs(sources, self._names, shape.longest).items():
            inputs[name] = self._device.zeros(array.shape, array.dtype)
            place = self._send(array, inputs[name])
            binding.bind_input(name, self._device.name, 0, array.dtype, list(array.shape), place)
        packed, last = self._bind_outputs(binding, shape.tokens, shape.sources)
        options = recorded(self._session, binding, self._device)
        return _Plan(binding._iobinding, options, inputs, packed, last)

    def _send(self, array: Array, target: Any) -> int:
        place = self._device.address(target)
        self._device.upload(place, array.ctypes.data, array.nbytes)
        return place

    def _bind_outputs(self, binding: Any, tokens: int, sources: int) -> tuple[Any, Any]:
        """Allocates keys and values of all layers, ``[2L, T, A]``, and of last tokens."""
        layers = len(self._outputs) // 2
        packed = self._device.zeros((layers, tokens, self._width), self._dtype)
        last = self._device.zeros((layers, sources, 1, self._width), self._dtype)
        # Of the key and of the value of each layer in turn: all tokens, and the last ones.
        arrays = [array for pair in zip(packed, last, strict=True) for array in pair]
        for entry, array in zip(self._outputs, arrays, strict=True):
            place, shape = self._device.address(array), list(array.shape)
            binding.bind_output(entry.name, self._device.name, 0, self._dtype, shape, place)
        return packed, last


def shape_of(tokens: int, sources: int, longest: int, most: int) -> Shape | None:
    """Chooses the smallest recorded shape that a group of sources can be filled up to.

    They have ``tokens`` together, and the longest one ``longest``; a source may have ``most``.
    """
    longest = _rounded(longest)
    size = max(_rounded(tokens), longest)
    while size <= _MOST_TOKENS:
        more, room = size // _TOKENS_A_SOURCE - sources, size - tokens
        if 0 <= more <= room <= more * min(longest, most):
            return Shape(size, size // _TOKENS_A_SOURCE, longest)
        size *= 2
    return None


def shapes(longest: int) -> list[Shape]:
    """Lists the shapes of groups whose sources have ``longest`` tokens at most."""
    most = _rounded(longest)
    sizes = [
        1 << power for power in range(_FEWEST_TOKENS.bit_length() - 1, _MOST_TOKENS.bit_length())
    ]
    return [
        Shape(size, size // _TOKENS_A_SOURCE, length)
        for size in sizes
        for length in sizes
        if length <= min(size, most)
    ]


def _rounded(tokens: int) -> int:
    return max(1 << (tokens - 1).bit_length(), _FEWEST_TOKENS)


def _filled(
    sources: Sequence[Sequence[int]], shape: Shape, token: int, most: int
) -> list[Sequence[int]]:
    more = shape.sources - len(sources)
    room = shape.tokens - sum(map(len, sources)) - more
    filled = [*sources]
    for _ in range(more):
        # No longer than the model has positions for.
        longer = min(room, min(shape.longest, most) - 1)
        filled.append([token] * (1 + longer))
        room -= longer
    return filled


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
    """Packs sources into the inputs of an encoder graph that have these names.

    As :func:`pack`, where ``longest`` is the longest source's length, rounded up, by default; and
    ``token_offset`` int32 ``[B, S]``, the places in the flattened padded batch of all tokens, then
    of all padding; ``cumulative_sequence_length`` int32 ``[B + 1]``, where each source begins, and
    where the last one ends.
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
