"""A device whose memory is the host's, so that its path runs where there is no GPU.

Numpy stands for cupy, and ONNX Runtime's CPU provider for CUDA's; it records no graphs. Memory that
is freed becomes NaN, so that answers are wrong where something still reads it by its address.
"""

import ctypes
import math
import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.gpu.device import Device
from seqserve_server.engine.gpu.runtime import DeviceRuntime
from seqserve_server.engine.runtime import Runtime

_GARBAGE = 0xFF
"""Bytes that are NaN as floats, and no token as integers."""


class HostArray(np.ndarray):
    """An array that counts as one of the device."""


class HostDevice(Device):
    """Stands for a GPU; notes what it allocates, and what is copied to and from it."""

    name = "cpu"
    packs_attention = False

    def __init__(self) -> None:
        self.arrays = np
        self.allocated = self.uploaded = self.downloaded = 0
        """Bytes."""
        self.waits = 0
        self._memory_kept: list[Any] = []
        self.recording = threading.Lock()

    def __enter__(self) -> None:
        """Has no stream."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Has no stream."""

    def zeros(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        memory = np.zeros(math.prod(shape) * dtype.itemsize, np.uint8)
        self._memory_kept.append(memory)
        self.allocated += memory.nbytes
        array = memory.view(dtype).reshape(shape).view(HostArray)
        weakref.finalize(array, memory.fill, _GARBAGE)
        return array

    def address(self, array: Any) -> int:
        return int(array.ctypes.data)

    def is_home_of(self, array: Any) -> bool:
        return isinstance(array, HostArray)

    def upload(self, address: int, host: int, size: int) -> None:
        ctypes.memmove(address, host, size)
        self.uploaded += size

    def download(self, address: int, host: int, size: int) -> None:
        ctypes.memmove(host, address, size)
        self.downloaded += size

    def memory(self) -> tuple[int, int]:
        return 3, 8

    def end_recording(self) -> None:
        """Records nothing."""

    def wait(self) -> None:
        self.waits += 1

    def provider(
        self, *, has_stream: bool = True, records: bool = False, plans: bool = True
    ) -> tuple[str, dict[str, str]]:
        return "CPUExecutionProvider", {}


def on_device(folder: Path) -> tuple[DeviceRuntime, HostDevice]:
    device = HostDevice()
    return DeviceRuntime(folder, Manifest.load(folder), Provider.CPU, device), device


def on_host(folder: Path) -> Runtime:
    return Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)
