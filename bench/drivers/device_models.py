"""The models of one shape for every engine, written in a process of its own."""

from __future__ import annotations

from pathlib import Path

import torch

from bench import random_artifact
from bench.drivers.ctranslate2 import CTranslate2Converter
from bench.drivers.device_engines import ARTIFACT, CONVERTED
from seqserve_model.config import TransformerConfig


class ModelWriter:
    """Draws random weights on a device, and writes them as each engine reads them."""

    def __init__(self, device: str, threads: int) -> None:
        """Takes the device, and how many threads may work beside others."""
        torch.set_num_threads(threads)
        self._device = device

    def write(self, config: TransformerConfig, traced: Path, folder: Path) -> None:
        """Writes what is not there yet; a model that is there is whole.

        Args:
            config: Of the model.
            traced: Its graphs; traced now if they are not there.
            folder: Of all its models.
        """
        if not traced.exists():
            random_artifact.trace(config, traced)
        places = {name: folder / name for name in (ARTIFACT, CONVERTED)}
        if all(place.exists() for place in places.values()):
            return
        model = random_artifact.draw_halved(config, self._device)
        for name, place in places.items():
            if place.exists():
                continue
            draft = folder / f"{name}.draft"
            if name == ARTIFACT:
                random_artifact.write(model, traced, draft)
            else:
                CTranslate2Converter(model).convert(str(draft))
            draft.rename(place)
