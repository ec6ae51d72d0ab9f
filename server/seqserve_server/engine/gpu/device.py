"""The memory of a GPU, and the stream that all work on a model is queued on, in its order.

So one thread at a time queues work: the only worker of an engine. Scores have a separate stream.
Its arrays are cupy's, which index as numpy's do. Work is queued and not waited for: the host goes
on until it reads what a step wrote. Runs that come again are recorded as CUDA graphs.
"""

import contextlib
import importlib
import itertools
import threading
from typing import Any

import numpy as np
import onnxruntime as ort

from seqserve_server.engine.gpu.cuda import missing

_TO_DEVICE, _TO_HOST = 1, 2
"""Directions of cudaMemcpyAsync. Source: the type cudaMemcpyKind in driver_types.h."""

_KERNELS_WITHOUT_PLANS = 1 | 2 | 4 | 16 | 32
"""Flash, memory-efficient, TensorRT's, plain and TensorRT's flash attention, but not cuDNN's.
Source: ONNX Runtime, AttentionBackend in contrib_ops/cpu/bert/attention_common.h."""


NOT_RECORDED = "-1"
_GRAPH_ID = "gpu_graph_id"
"""Source: ONNX Runtime, onnxruntime_run_options_config_keys.h."""
_IDS = itertools.count(1)
"""Ids of CUDA graphs. Runs over other buffers share sessions, so each id is used once."""


class Device:
    """One GPU; as a context manager it queues what is done with its arrays on its stream."""

    name = "cuda"
    """As ONNX Runtime calls the kind of memory."""
    packs_attention = True
    """Whether it has kernels of attention over packed sources."""

    def __init__(self) -> None:
        """Makes a stream on the first GPU that the process can see; ProviderError without cupy."""
        try:
            cupy = importlib.import_module("cupy")
        except ImportError as error:
            raise missing(error) from error
        self.arrays: Any = cupy
        """Makes arrays, as the module numpy does."""
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._copy = cupy.cuda.runtime.memcpyAsync
        self.recording = threading.Lock()
        """Held while a CUDA graph is recorded: a call from another thread may spoil it."""
        self._memory = 0, 0

    def __enter__(self) -> None:
        self._stream.__enter__()

    def __exit__(self, *error: object) -> None:
        self._stream.__exit__(*error)

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """Allocates an array; MemoryError if the memory of the GPU is full."""
        try:
            with self:
                return self.arrays.zeros(shape, dtype)
        except self.arrays.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    def address(self, array: Any) -> int:
        """Returns where an array lies in the memory of the GPU."""
        return int(array.data.ptr)

    def is_home_of(self, array: Any) -> bool:
        """Returns whether an array is in the memory of the GPU."""
        return isinstance(array, self.arrays.ndarray)

    def upload(self, address: int, host: int, size: int) -> None:
        """Queues a copy of ``size`` bytes from the memory of the host, which may change then."""
        self._copy(address, host, size, _TO_DEVICE, self._stream.ptr)

    def download(self, address: int, host: int, size: int) -> None:
        """Queues a copy of ``size`` bytes to the memory of the host."""
        self._copy(host, address, size, _TO_HOST, self._stream.ptr)

    def memory(self) -> tuple[int, int]:
        """Returns the bytes in use, by any process, and all bytes; 0 if CUDA does not say."""
        if self.recording.acquire(blocking=False):
            try:
                free, total = self.arrays.cuda.runtime.memGetInfo()
                self._memory = total - free, total
            except self.arrays.cuda.runtime.CUDARuntimeError:
                self._memory = 0, 0
            finally:
                self.recording.release()
        return self._memory

    def end_recording(self) -> None:
        """Ends the recording of a CUDA graph that has failed, so that other work can be queued."""
        runtime = self.arrays.cuda.runtime
        if runtime.streamIsCapturing(self._stream.ptr):
            with contextlib.suppress(runtime.CUDARuntimeError):
                runtime.graphDestroy(runtime.streamEndCapture(self._stream.ptr))

    def wait(self) -> None:
        """Waits until all that is queued is done."""
        self._stream.synchronize()

    def provider(
        self, *, has_stream: bool = True, records: bool = False, plans: bool = True
    ) -> tuple[str, dict[str, str]]:
        """Names ONNX Runtime's execution provider, with its options.

        It may queue its work on the stream, record runs as CUDA graphs, and take kernels of cuDNN
        for attention. These are the fastest, but plan each new shape, which takes some 80 ms.
        """
        options = {"use_tf32": "0", "enable_cuda_graph": str(int(records))}
        if has_stream:
            options["user_compute_stream"] = str(self._stream.ptr)
        if not plans:
            options["sdpa_kernel"] = str(_KERNELS_WITHOUT_PLANS)
        return "CUDAExecutionProvider", options


def run_options(graph_id: str | None = None) -> ort.RunOptions:
    """Makes options of a run that returns when all its work is queued.

    The id is that of the CUDA graph that it records or plays back, or :data:`NOT_RECORDED`; None
    where the session records nothing.
    """
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    if graph_id is not None:
        options.add_run_config_entry(_GRAPH_ID, graph_id)
    return options


def recorded(session: ort.InferenceSession, binding: Any, device: Device) -> ort.RunOptions:
    """Records a run, which is run several times for that; returns the options that play it back.

    If it raises, :meth:`Device.end_recording` must follow.
    """
    options = run_options(str(next(_IDS)))
    with device.recording:
        session.run_with_iobinding(binding, options)
    return options
