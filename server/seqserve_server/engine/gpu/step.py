"""One decoder step whose rows lie in the memory of a GPU.

Keys and values never leave it. In each step the host sends a few numbers a row and reads the next
tokens. Rows are rounded up, so that few sizes occur. Each size is bound once, and ONNX Runtime
records it as a CUDA graph; then a step costs the host one call instead of some hundred.
"""

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.decoder_state import MIN_LENGTH
from seqserve_server.engine.gpu.device import NOT_RECORDED, Device, recorded, run_options
from seqserve_server.engine.gpu.graphs import CHOSEN, PLAIN, SCORED, TARGET_POSITIONS, End
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import SHARED_INPUTS, StepSizes, shape_of

_log = logging.getLogger(__name__)

_ONLY_SIZES = {"top_k", "num_logits"}
"""Inputs of which a step reads the length alone."""
_LENGTHS = ("max_length", "max_source_length")
_CONSTANT = "projected_rows"
_READ_LENGTHS = ("lengths", "source_last_index")
"""Inputs that say how far attention reads the caches of a row, int32 ``[B]``."""

_GROWING = {"logits", "allowed_tokens", "allowed_rows", "allowed_logits"}
"""Arrays of steps that are not recorded. They grow with use: all of them would need gigabytes."""

_MIN_BOUND_LENGTH = 128
"""Shortest maximum length that is bound: shorter ones gain nothing."""
_ROWS = 8
"""As few rows are rounded up to a power of two; more also to one and a half times a power."""
_MAX_PLANS = 1024
_MAX_RECORDED = 256
"""CUDA graphs kept; each takes memory of the GPU."""
_ATTEMPTS = 2
"""To record a size."""

_Key: TypeAlias = tuple[int, StepSizes, int, int]
"""Rows, sizes, and the maximum lengths of target and source, in tokens."""


class _Copy(NamedTuple):
    device: int
    host: int
    bytes_a_row: int
    bytes_beside: int
    """Copied whatever the number of rows."""


class _Plan(NamedTuple):
    session: Any
    binding: Any
    options: ort.RunOptions
    uploads: list[_Copy]
    downloads: list[_Copy]
    bound: list[Any]
    """Arrays that it reads and writes by their addresses, on the host and on the device."""


class DeviceStep:
    """A decoder step for any number of leading rows; it takes the place of a :class:`Step`."""

    def __init__(
        self,
        sessions: Mapping[End | None, ort.InferenceSession],
        device: Device,
        inputs: dict[str, Array],
        outputs: dict[str, Array],
    ) -> None:
        """Keeps the buffers, on the host or the device; a size is bound when it is first needed.

        There is a session for each end's graph; None is the key of a step with all ends, which is
        never recorded.
        """
        self._sessions = sessions
        self._device = device
        self._inputs, self._outputs = inputs.copy(), outputs
        self._copies_on_device: dict[int, Any] = {}
        """Where arrays of the host lie on the device, by their addresses on the host."""
        self._states = [array for name, array in inputs.items() if name.startswith("cell_")]
        self._slots = len(inputs["tokens"])
        self._rows = 0
        """How many ran last."""
        self._capacities = {
            "max_length": _capacity(inputs, "self_key_0"),
            "max_source_length": _capacity(inputs, "cross_key_0"),
        }
        count = self._capacities["max_length"]
        self._inputs[TARGET_POSITIONS] = device.zeros((count,), np.dtype(np.int64))
        with device:
            self._inputs[TARGET_POSITIONS][:] = device.arrays.arange(count)
        self._plans: dict[_Key, _Plan] = {}
        self._recorded: dict[_Key, ort.RunOptions] = {}
        """Options of runs that play CUDA graphs back."""
        self._wanted: set[_Key] = set()
        """Steps that are to be recorded when there is time."""
        self.unrecorded = 0
        """Sizes whose recording has failed; their steps take longer."""

    def run(self, rows: int, sizes: StepSizes) -> None:
        """Advances rows 0 to ``rows`` - 1 by one token, and waits for it."""
        if rows < self._rows:
            self._empty_rows_from(rows)
        self._rows = rows
        target, source = (self._rounded_length(name) for name in _LENGTHS)
        key = rounded_rows(rows, self._slots), sizes, target, source
        plan = self._plans.get(key) or self._stand_in(key) or self._plan(rows, key)
        self._upload(plan, rows)
        plan.session.run_with_iobinding(plan.binding, plan.options)
        download = self._device.download
        for copy in plan.downloads:
            download(copy.device, copy.host, copy.bytes_a_row * rows + copy.bytes_beside)
        self._device.wait()

    def _stand_in(self, key: _Key) -> _Plan | None:
        """Returns a recorded step that computes more than necessary."""
        rows, sizes, target, source = key
        if not sizes.is_plain:
            return None
        plan = self._plans.get((rows, sizes._replace(logprobs=True), target, source))
        if plan is not None:
            self._wanted.add(key)
        return plan

    def _upload(self, plan: _Plan, rows: int) -> None:
        upload = self._device.upload
        for copy in plan.uploads:
            upload(copy.device, copy.host, copy.bytes_a_row * rows + copy.bytes_beside)

    def _empty_rows_from(self, row: int) -> None:
        """Lets rows that run only because their number is rounded up read one token."""
        for name in _READ_LENGTHS:
            array = self._inputs[name]
            zeros = np.zeros(self._slots - row, array.dtype)
            address = self._device.address(self._on_device(name, array)) + row * array.itemsize
            self._device.upload(address, zeros.ctypes.data, zeros.nbytes)

    def _rounded_length(self, name: str) -> int:
        length, capacity = int(self._inputs[name][0]), self._capacities[name]
        return min(max(1 << (length - 1).bit_length(), _MIN_BOUND_LENGTH), capacity)

    def _plan(self, rows: int, key: _Key) -> _Plan:
        """Binds a step; the first one of its sizes reads ``rows`` rows."""
        if len(self._plans) >= _MAX_PLANS:
            self._plans.clear()
        padded, sizes, target, source = key
        session = self._sessions[_end(sizes)]
        inputs = {name: self._inputs[name] for name in _names(session.get_inputs())}
        outputs = {name: self._outputs[name] for name in _names(session.get_outputs())}
        lengths = dict(zip(_LENGTHS, (target, source), strict=True))
        binding, bound = session.io_binding(), []
        for bind, arrays in ((binding.bind_input, inputs), (binding.bind_output, outputs)):
            for name, array in arrays.items():
                shape = shape_of(name, array, padded, sizes)
                if name == TARGET_POSITIONS:
                    shape = [target]
                if name in SHARED_INPUTS:
                    own = np.full(array.shape, lengths.get(name, array), array.dtype)
                    kind, address = "cpu", own.ctypes.data
                else:
                    own = self._on_device(name, array, math.prod(shape))
                    kind, address = self._device.name, self._device.address(own)
                bind(name, kind, 0, np.dtype(own.dtype), shape, address)
                bound.append(own)
        constant = inputs[_CONSTANT]
        address = self._device.address(self._on_device(_CONSTANT, constant))
        self._device.upload(address, constant.ctypes.data, constant.nbytes)
        uploads = self._copies(inputs, padded, sizes)
        downloads = self._copies(outputs, padded, sizes)
        plan = _Plan(session._sess, binding._iobinding, run_options(), uploads, downloads, bound)
        if _end(sizes) is not None:
            plan = plan._replace(options=self._options_of(plan, rows, key))
        self._plans[key] = plan
        return plan

    def _options_of(self, plan: _Plan, rows: int, key: _Key) -> ort.RunOptions:
        """Records a step of new sizes; returns the options of its runs."""
        if key in self._recorded:
            return self._recorded[key]
        if len(self._recorded) < _MAX_RECORDED:
            for _ in range(_ATTEMPTS):
                try:
                    # Not kept before it is there: a step that failed would count as recorded, and
                    # run twice where it counts.
                    self._recorded[key] = self._record(plan, rows)
                except Exception:
                    _log.warning("a step of %d rows could not be recorded", key[0], exc_info=True)
                    self._device.end_recording()
                else:
                    return self._recorded[key]
            self.unrecorded += 1
        return run_options(NOT_RECORDED)

    def _record(self, plan: _Plan, rows: int) -> ort.RunOptions:
        """Records a step, and puts states of recurrent layers back.

        Recording runs it several times, each on the tokens of the one before; the step that follows
        sends them again.
        """
        with self._device:
            before = [states.copy() for states in self._states]
        self._upload(plan, rows)
        try:
            return recorded(plan.session, plan.binding, self._device)
        finally:
            with self._device:
                for states, copy in zip(self._states, before, strict=True):
                    states[:] = copy

    def use_idle_time(self) -> None:
        """Records one of the steps that others have stood in for; no row may run."""
        if not self._wanted:
            return
        key = self._wanted.pop()
        self._empty_rows_from(0)
        self._rows = 0
        self._plan(0, key)

    def _on_device(self, name: str, array: Any, size: int = 0) -> Any:
        """Returns an array of the device, or its copy of a host array, with room for ``size``."""
        if self._device.is_home_of(array):
            return array
        key = array.ctypes.data
        if key not in self._copies_on_device or len(self._copies_on_device[key]) < size:
            room = array.size
            if name in _GROWING:
                room = min(1 << (size - 1).bit_length(), room)
            self._copies_on_device[key] = self._device.zeros((max(room, 1),), array.dtype)
        return self._copies_on_device[key]

    def _copies(self, arrays: Mapping[str, Array], rows: int, sizes: StepSizes) -> list[_Copy]:
        """Lists what is copied of arrays of the host, with room for ``rows`` rows."""
        copies = []
        for name, array in arrays.items():
            if name in SHARED_INPUTS or name in _ONLY_SIZES or name == _CONSTANT:
                continue
            if not self._device.is_home_of(array):
                none, one, all_ = (
                    math.prod(shape_of(name, array, count, sizes)) for count in (0, 1, rows)
                )
                if all_:
                    address = self._device.address(self._on_device(name, array, all_))
                    size = array.itemsize
                    copies.append(
                        _Copy(address, array.ctypes.data, (one - none) * size, none * size)
                    )
        return copies


def rounded_rows(rows: int, slots: int) -> int:
    """Rounds a number of rows up to one of the few that are recorded: 1, 2, 4, 8, 12, 16, 24, .."""
    power = 1 << (rows - 1).bit_length()
    less = power // 4 * 3
    return min(less if rows <= less and rows > _ROWS else power, slots)


def _end(sizes: StepSizes) -> End | None:
    """Chooses the graph that computes what a step is to compute, and no more."""
    if sizes.is_plain:
        return PLAIN
    if not sizes.only_scores:
        return None
    return SCORED if sizes.top_k else CHOSEN


def _names(entries: Iterable[Any]) -> list[str]:
    return [entry.name for entry in entries]


def _capacity(inputs: Mapping[str, Array], name: str) -> int:
    """Returns the tokens that a cache has room for; the minimum without a cache."""
    return inputs[name].shape[2] if name in inputs else MIN_LENGTH
