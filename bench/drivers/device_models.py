"""The models of a shape for every engine, written in a process of its own.

python -m bench.drivers.device_models cuda build/bench/gpu [SHAPE ...]    beforehand, all or some
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import torch

from bench import random_artifact
from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.device_engines import ARTIFACT, CONVERTED
from seqserve.processes import available_cores
from seqserve_export.fp16_conversion import halve
from seqserve_model.config import TransformerConfig


class ModelWriter:
    """Draws random weights on a device, and writes them as each engine reads them."""

    def __init__(self, device: str, threads: int) -> None:
        """Takes the device, and how many threads may work beside others."""
        torch.set_num_threads(threads)
        self._device = device

    def write(self, name: str, config: TransformerConfig, place: Path) -> None:
        """Writes what is not there yet; a model that is there is whole.

        Args:
            name: Of the shape.
            config: Of the model.
            place: Folder of the folders of all shapes; ``traced`` there has their graphs, which are
                traced now if they are missing.
        """
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
