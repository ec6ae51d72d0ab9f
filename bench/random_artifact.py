"""Models with random weights for the engines on a device, and the limits of the device.

    python -m bench.random_artifact FOLDER [SHAPE ...]    traces graphs of shapes, for minutes

Tracing a model takes minutes, and its weights some gigabytes; the graphs are small and the same for
all weights. So they can be traced on one machine and carried to another, where the weights are
drawn again and written to the places that the graphs expect.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.device_engines import ARTIFACT, CONVERTED
from bench.models import (
    BART_LARGE,
    BART_LARGE_CNN,
    FLAN_T5_BASE,
    MARIAN_BASE,
    NLLB_600M,
    T5_BASE,
    marian_base,
    write_unproven,
)
from seqserve_export.fp16_conversion import halve
from seqserve_export.options import Precision
from seqserve_export.pipeline import Rounding
from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.files import digest_of
from seqserve_server.artifact.manifest import SCORER, WEIGHTS, Manifest

SHAPES = {
    "Marian base": MARIAN_BASE,
    "BART-large": BART_LARGE,
    "NLLB-600M": NLLB_600M,
    "T5-base": T5_BASE,
    "Flan-T5-base": FLAN_T5_BASE,
    "BART-large-CNN": BART_LARGE_CNN,
}
"""By the name of a model that has the shape."""
_NOISE = 0.02


def folder_name(shape: str) -> str:
    """Makes a model's name of a shape's."""
    return shape.lower().replace(" ", "-")


@torch.no_grad()
def random_model(config: TransformerConfig, device: str = "cpu") -> Transformer:
    """Draws a model at fp32 on a device, where that is quick.

    No weight is zero or equals another one: a graph would lose it, or keep one place for both.
    """
    with torch.device(device):
        model = marian_base(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(_NOISE * torch.randn_like(parameter))
    return model


def trace(config: TransformerConfig, folder: Path) -> None:
    """Writes the artifact of a shape, without its weights, into a new folder named as the model."""
    rounding = Rounding(precision=Precision.FP16)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        model = random_model(config)
        artifact = write_unproven(model, Path(place), folder.name, rounding=rounding)
        (artifact / WEIGHTS).unlink()
        artifact.rename(folder)


def write(halved: Transformer, traced: Path, folder: Path) -> None:
    """Writes the artifact of a model on graphs of the same shape.

    Weights of less than a kibibyte are part of the graphs, and remain what they were.
    """
    shutil.copytree(traced, folder)
    manifest = Manifest.read(traced)
    size = manifest.files[WEIGHTS].bytes
    file = np.memmap(folder / WEIGHTS, np.uint8, "w+", shape=(size,))
    for offset, weight in _placed(halved, traced / SCORER):
        data = weight.reshape(-1).view(np.uint8)
        file[offset : offset + data.size] = data
    file.flush()
    del file
    files = manifest.files | {WEIGHTS: digest_of(folder / WEIGHTS)}
    replace(manifest, files=files).write(folder)


def _placed(model: Transformer, scorer: Path) -> Iterator[tuple[int, NDArray[Any]]]:
    named: dict[str, Tensor] = {
        **dict(model.named_parameters(remove_duplicate=False)),
        **dict(model.named_buffers(remove_duplicate=False)),
    }
    for entry in onnx.load(str(scorer), load_external_data=False).graph.initializer:
        place = {item.key: item.value for item in entry.external_data}
        if not place:
            continue
        weight = named[entry.name.removeprefix("model.")].detach().numpy()
        if weight.nbytes != int(place["length"]):
            raise ValueError(f"{scorer}: {entry.name} has {place['length']} bytes")
        yield int(place["offset"]), weight


@dataclass(frozen=True, slots=True)
class Work:
    """The matrices of a step's products."""

    weights: int
    """Numbers that are read, each multiplied once for every row."""
    bytes: int

    @classmethod
    def of(cls, config: TransformerConfig) -> Work:
        """Counts the weights of a shape at fp16 that a step of its decoder multiplies with."""
        with torch.device("meta"):
            model = Transformer(config)
        # Keys and values of the source are computed when it is encoded.
        sizes = {
            name: module.weight.numel()
            for name, module in model.named_modules()
            if isinstance(module, nn.Linear)
            and name.startswith(("decoder_layers.", "output_projection"))
            and not name.endswith(("cross_attention.key", "cross_attention.value"))
        }
        return cls(sum(sizes.values()), 2 * sum(sizes.values()))


_REPEATS = 5


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """The device, and its limits as torch reaches them."""

    name: str
    bytes_per_s: float
    """Of a copy: bytes read, and as many written."""
    operations_per_s: float
    """Of a product of square matrices; two for each product of numbers."""


class Device:
    """Draws random weights on a device, writes them as each engine reads them, and measures it."""

    def __init__(self, device: str, threads: int = 1) -> None:
        torch.set_num_threads(threads)
        self._device = device

    def write(self, name: str, config: TransformerConfig, place: Path) -> None:
        """Writes what ``place`` lacks of a shape; ``place/traced`` has the graphs of all shapes."""
        traced, folder = (part / folder_name(name) for part in (place / "traced", place))
        folder.mkdir(parents=True, exist_ok=True)
        if not traced.exists():
            trace(config, traced)
        targets = {kind: folder / kind for kind in (ARTIFACT, CONVERTED)}
        if all(target.exists() for target in targets.values()):
            return
        model = random_model(config, self._device).cpu()
        halved = halve(model)
        for kind, target in targets.items():
            if target.exists():
                continue
            draft = folder / f"{kind}.draft"
            # One that was left unfinished.
            shutil.rmtree(draft, ignore_errors=True)
            if kind == ARTIFACT:
                write(halved, traced, draft)
            else:
                # Some weights of ours are scaled, so that sums stay among the numbers of fp16.
                CTranslate2Converter(model.half()).convert(str(draft))
            draft.rename(target)

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


def main(folder: str, *names: str) -> None:
    """Traces what is not there yet, of all shapes or of some."""
    for name, config in SHAPES.items():
        place = Path(folder) / folder_name(name)
        if (not names or place.name in names) and not place.exists():
            print(name, flush=True)
            trace(config, place)


if __name__ == "__main__":
    main(*sys.argv[1:])
