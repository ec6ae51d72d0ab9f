"""What a device can do at best: copies of its own memory, and products of large matrices."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_REPEATS = 5


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The device, and its limits as torch reaches them."""

    name: str
    bytes_per_s: float
    """Of a copy: bytes read, and as many written."""
    operations_per_s: float
    """Of a product of square matrices; two for each product of numbers."""


class LimitsProbe:
    """Measures a device."""

    def __init__(self, device: str) -> None:
        """Takes the device; of a CPU one core."""
        self._device = device
        if device == "cpu":
            torch.set_num_threads(1)

    def measure(self) -> DeviceLimits:
        """Copies a gibibyte and multiplies matrices of 8192, less on a CPU."""
        is_cpu = self._device == "cpu"
        size, width = (1 << 28, 1024) if is_cpu else (1 << 30, 8192)
        dtype = torch.float32 if is_cpu else torch.float16
        source = torch.zeros(size, dtype=torch.uint8, device=self._device)
        target = torch.empty_like(source)
        left, right = (torch.randn(width, width, device=self._device).to(dtype) for _ in range(2))
        return DeviceLimits(
            name="CPU" if is_cpu else torch.cuda.get_device_name(),
            bytes_per_s=2 * size / self._seconds(lambda: target.copy_(source)),
            operations_per_s=2 * width**3 / self._seconds(lambda: left @ right),
        )

    def _seconds(self, run: Callable[[], object]) -> float:
        """Measures the fastest of some groups of runs, after one that warms up."""
        runs = 2 if self._device == "cpu" else 10
        times = []
        for _ in range(_REPEATS + 1):
            began_s = time.perf_counter()
            for _ in range(runs):
                run()
            if self._device != "cpu":
                torch.cuda.synchronize()
            times.append((time.perf_counter() - began_s) / runs)
        return min(times[1:])
