"""A model whose graphs run on a GPU: weights, keys and values stay in its memory."""

import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import numpy as np
import onnxruntime as ort

from seqserve_server.artifact.manifest import DECODER, ENCODER, SCORER, WEIGHTS, Manifest
from seqserve_server.contract.errors import ProviderError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.decoder_state import (
    CrossAttentionCache,
    TargetState,
    allocate_state,
)
from seqserve_server.engine.gpu import cuda
from seqserve_server.engine.gpu.device import Device
from seqserve_server.engine.gpu.encoder import DeviceEncoder, pack_attention
from seqserve_server.engine.gpu.graphs import (
    CHOSEN,
    PLAIN,
    SCORED,
    End,
    fuse_norms,
    unbranched_graph,
)
from seqserve_server.engine.gpu.state import types_on
from seqserve_server.engine.gpu.step import DeviceStep, rounded_rows
from seqserve_server.engine.graph_messages import MODEL, NUMPY_TYPES, graphs_of
from seqserve_server.engine.packing import Array, CrossKV, EncodingLimits
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.session import check_provider, open_session
from seqserve_server.engine.step import DraftReader

_PRECISION = "fp16"
_GROUP_TOKENS = 4096
"""Source tokens encoded together: a GPU takes as long for them as for ten."""
_COMPANY = 16
"""Sources that wait for each other, at most a step for so many running rows: to encode one or
sixteen takes as long as a step, in which no row advances."""


class DeviceRuntime(Runtime):
    """A loaded model on one GPU."""

    def __init__(
        self, folder: Path, manifest: Manifest, provider: Provider, device: Device
    ) -> None:
        """Opens the graphs of an artifact, as :class:`Runtime` does."""
        self._device = device
        self._weights = Weights(folder / WEIGHTS, device)
        # Sessions read it without a copy.
        self._shared: list[ort.OrtValue] = []
        # Their buffers are large, and belong to engines that may end before the model.
        self._steps: WeakSet[DeviceStep] = WeakSet()
        super().__init__(folder, manifest, provider, threads=1)
        shape = manifest.architecture
        width = shape.heads * shape.head_size
        self._device_encoder = DeviceEncoder(self._encoder, device, width, self.cache_type)
        self._ends: dict[End | None, ort.InferenceSession] = {None: self._decoder}
        for end in (PLAIN, CHOSEN, SCORED):
            graph = unbranched_graph(folder / DECODER, end)
            self._ends[end] = self._open_shared(DECODER, graph, device.provider(records=True))

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        """Encodes sources of any lengths together; its work is queued when it returns."""
        return self._device_encoder.encode(sources)

    def step(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> DeviceStep:
        """Makes a step over the buffers given; see :class:`DeviceStep`."""
        step = DeviceStep(self._ends, self._device, inputs, outputs)
        self._steps.add(step)
        return step

    def decoder_state(self, slots: int) -> tuple[TargetState, CrossAttentionCache]:
        """Allocates what the decoder's layers keep of a number of slots."""
        return allocate_state(self.manifest, slots, self.cache_type, types_on(self._device))

    def warm_up_steps(self, slots: int) -> list[tuple[int, bool]]:
        """Lists the steps to run beforehand, so that no caller waits for one to be recorded."""
        sizes = sorted({rounded_rows(rows, slots) for rows in range(1, slots + 1)})
        return [(rows, True) for rows in sizes]

    def step_rows(self, rows: int, slots: int) -> int:
        """Returns over how many rows a step runs: sizes are rounded up to recorded ones."""
        return rounded_rows(rows, slots)

    def warm_up(self) -> None:
        """Records encodings; see :meth:`Runtime.warm_up`."""
        limits, tokens = self.manifest.limits, self.manifest.tokens
        self._device_encoder.record(limits.max_source_length, tokens.eos)

    def use_idle_time(self) -> None:
        """Records a step that others have stood in for; see :meth:`Runtime.use_idle_time`."""
        for step in self._steps:
            step.use_idle_time()

    def encoding_limits(self, budget_tokens: int) -> EncodingLimits:
        """Says how many sources are encoded together."""
        budget_tokens = max(budget_tokens, _GROUP_TOKENS)
        return EncodingLimits(
            budget_tokens, budget_tokens, group_sources=_COMPANY, rows_for_a_step=_COMPANY
        )

    def gpu_memory(self) -> tuple[int, int]:
        """Returns the bytes in use, and all bytes, of the memory of its GPU."""
        return self._device.memory()

    @property
    def unrecorded_steps(self) -> int:
        """Sizes of steps that could not be recorded as CUDA graphs."""
        return sum(step.unrecorded for step in self._steps)

    def is_usable(self) -> bool:
        """Tells, after a failure, whether other steps may still succeed.

        After some errors, such as one address out of bounds, CUDA refuses all further work.
        """
        try:
            # The thread of the scorer asks too, and to wait spoils what a step records.
            with self._device.recording:
                self._device.wait()
        except Exception:
            return False
        return True

    def score(
        self, source: Array, lengths: Array, target: Array, outputs: list[str]
    ) -> list[Array]:
        """Runs given targets through the scorer graph; see :meth:`Runtime.score`."""
        # It runs in another thread than steps, and may allocate, which spoils a recording.
        with self._device.recording:
            return super().score(source, lengths, target, outputs)

    def free_scratch(self) -> None:
        """Keeps the memory of runs of the scorer graph: what gives it back is for CPUs."""

    def _draft_reader(self) -> DraftReader | None:
        # The last bits of a row may depend on the other rows.
        return None

    def _open(self, name: str, *, packs: bool | None = None) -> ort.InferenceSession:
        data = (self._folder / name).read_bytes()
        if name == SCORER:
            return self._open_shared(name, data, self._device.provider(has_stream=False))
        if name == ENCODER:
            return self._open_shared(name, data, self._device.provider(records=True, plans=False))
        return self._open_shared(name, data, self._device.provider())

    def _open_shared(
        self, name: str, graph: bytes, provider: tuple[str, dict[str, str]]
    ) -> ort.InferenceSession:
        """Opens a graph, or one derived from it, over the weights on the device."""
        model = MODEL.FromString(graph)
        if name != SCORER:
            fuse_norms(model.graph)
        if name == ENCODER and self._device.packs_attention:
            pack_attention(model.graph)

        def share(options: ort.SessionOptions) -> None:
            self._shared += self._weights.share(model.graph, options)

        return open_session(
            self._folder,
            name,
            self.manifest,
            self.provider,
            threads=1,
            graph=model.SerializeToString(),
            provider_options=provider,
            share=share,
        )


def open_runtime(
    folder: Path, manifest: Manifest, provider: Provider, threads: int, **options: Any
) -> Runtime:
    """Opens an artifact on an execution provider, as :class:`Runtime` does.

    Raises ProviderError also if the provider does not take the artifact's precision.
    """
    if provider is not Provider.CUDA:
        return Runtime(folder, manifest, provider, threads, **options)
    check_provider(provider)
    if manifest.precision != _PRECISION:
        raise ProviderError(
            f"provider cuda: {manifest.label} is at {manifest.precision}, for which there are no"
            f" kernels; export it with --precision {_PRECISION}, or use --provider cpu"
        )
    try:
        return DeviceRuntime(folder, manifest, provider, Device())
    except MemoryError as error:
        raise ProviderError(
            f"provider cuda: the weights of {manifest.label} do not fit: {cuda.NO_MEMORY}"
        ) from error


class Weights:
    """The tensors of one file."""

    def __init__(self, path: Path, device: Device) -> None:
        """Copies the file, which has been checked; MemoryError if it does not fit."""
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._data = device.zeros((len(data),), np.dtype(np.uint8))
            host = np.frombuffer(data, np.uint8)
            device.upload(device.address(self._data), host.ctypes.data, len(data))
            device.wait()
            del host  # or the file could not be closed

    def share(self, graph: Any, options: ort.SessionOptions) -> list[ort.OrtValue]:
        """Shares with a session the tensors of its graph that are in the file.

        Returns objects that must live as long as the session.
        """
        shared = []
        for part in graphs_of(graph):
            for tensor in part.tensors:
                if tensor.external:
                    value = ort.OrtValue.from_dlpack(self._tensor(tensor))
                    options.add_initializer(tensor.name, value)
                    shared.append(value)
        return shared

    def _tensor(self, tensor: Any) -> Any:
        entries = {entry.key: entry.value for entry in tensor.external}
        begin, dims = int(entries.get("offset", 0)), tuple(tensor.dims)
        dtype = np.dtype(NUMPY_TYPES[tensor.kind])
        end = begin + math.prod(dims) * dtype.itemsize
        return self._data[begin:end].view(dtype).reshape(dims)
