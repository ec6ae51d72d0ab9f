"""The encoder on a GPU: small groups of sources are encoded by recorded CUDA graphs.

The host takes 2 ms to start the kernels of an encoding, and a GPU often less to run them. A
recorded graph starts them in one call, but has one shape. So groups are filled up with sources of
no meaning to one of a few shapes, which are recorded before the first request.
"""

import logging
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.gpu.device import NOT_RECORDED, Device, recorded, run_options
from seqserve_server.engine.gpu.packed_encoder import packed_inputs
from seqserve_server.engine.packing import Array, CrossKV, starts_of

_TOKENS_A_SOURCE = 8
"""Of a shape; groups of shorter sources take a larger shape."""
_FEWEST_TOKENS, _MOST_TOKENS = 32, 1024
"""Of the recorded shapes. With more tokens, the GPU takes longer than the host."""

_log = logging.getLogger(__name__)


class Shape(NamedTuple):
    """Of a group of sources."""

    tokens: int
    """Of all sources."""
    sources: int
    longest: int
    """Tokens of the longest source, rounded up."""


class _Plan(NamedTuple):
    """An encoding of one shape."""

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
        """Takes the session of the graph.

        Args:
            session: May record.
            device: Where it runs.
            width: A, of a key or a value.
            dtype: Of keys and values.
        """
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
        """Records all shapes that have some; to be called in the thread that will encode.

        Args:
            longest: Most tokens of a source.
            end_token: What a source is made of.
        """
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

    Args:
        tokens: Of all sources.
        sources: Their number.
        longest: Tokens of the longest one.
        most: Tokens that a source may have.
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
    """Adds sources of one token, and longer ones, until a group has a shape."""
    more = shape.sources - len(sources)
    room = shape.tokens - sum(map(len, sources)) - more
    filled = [*sources]
    for _ in range(more):
        # No longer than the model has positions for.
        longer = min(room, min(shape.longest, most) - 1)
        filled.append([token] * (1 + longer))
        room -= longer
    return filled
