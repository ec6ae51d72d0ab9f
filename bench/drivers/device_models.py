"""Prepares the engines on a device: their models, and the limits of the device.

python -m bench.drivers.device_models cuda build/bench/gpu [SHAPE ...]    beforehand, all or some
"""

import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from bench import random_artifact
from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.device_engines import ARTIFACT, CONVERTED
from seqserve.processes import available_cores
from seqserve_export.fp16_conversion import halve
from seqserve_model.config import TransformerConfig

_REPEATS = 5


class ModelWriter:
    """Draws random weights on a device, and writes them as each engine reads them."""

    def __init__(self, device: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self._device = device

    def write(self, name: str, config: TransformerConfig, place: Path) -> None:
        """Writes what ``place`` lacks of a shape; ``place/traced`` has the graphs of all shapes."""
        traced, folder = (
            part / random_artifact.folder_name(name) for part in (place / "traced", place)
        )
        folder.mkdir(parents=True, exist_ok=True)
        if not traced.exists():
            random_artifact.trace(config, traced)
        targets = {kind: folder / kind for kind in (ARTIFACT, CONVERTED)}
        if all(target.exists() for target in targets.values()):
            return
        model = random_artifact.random_model(config, self._device).cpu()
        halved = halve(model)
        for kind, target in targets.items():
            if target.exists():
                continue
            draft = folder / f"{kind}.draft"
            # One that was left unfinished.
            shutil.rmtree(draft, ignore_errors=True)
            if kind == ARTIFACT:
                random_artifact.write(halved, traced, draft)
            else:
                # Some weights of ours are scaled, so that sums stay among the numbers of fp16.
                CTranslate2Converter(model.half()).convert(str(draft))
            draft.rename(target)


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


def main(device: str, place: Path, *names: str) -> None:
    """Writes the models of all shapes, or of some, one after another."""
    writer = ModelWriter(device, available_cores())
    for name, config in random_artifact.SHAPES.items():
        folder = place / random_artifact.folder_name(name)
        if not names or folder.name in names:
            writer.write(name, config, place)
            print(f"written: {folder}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
