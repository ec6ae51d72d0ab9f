"""Restores the torch model from an artifact: the scorer graph keeps all weights under their names.

So a shipped artifact is enough to compare with other engines, or to continue training.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.manifest import SCORER, Manifest
from seqserve_server.contract.errors import ArtifactError


def restore(folder: Path) -> Transformer:
    """Builds the model of an artifact, in evaluation mode; weights of int8 stay rounded.

    Raises:
        ArtifactError: The artifact is not sound, or lacks weights.
    """
    manifest = Manifest.load(folder)
    graph = onnx.load(str(folder / SCORER)).graph
    arrays = {entry.name: onnx.numpy_helper.to_array(entry) for entry in graph.initializer}
    model = Transformer(TransformerConfig.from_dict(manifest.architecture.config))
    with torch.no_grad():
        for parameter, names in _names(model).items():
            name = next((name for name in names if f"model.{name}" in arrays), None)
            if name is None:
                raise ArtifactError(f"{folder}/{SCORER}: has no weight {names[0]}")
            parameter.copy_(torch.from_numpy(_weight(arrays, name, model.embedding_scale)))
    return model.eval()


def _weight(
    arrays: Mapping[str, NDArray[Any]], name: str, embedding_scale: float
) -> NDArray[np.float32]:
    """Returns a weight as numbers; ``embedding_scale`` is in the scales of rounded embeddings."""
    weight, scale = arrays[f"model.{name}"], arrays.get(f"model.{name}_scale")
    if scale is not None:
        # The integers of an embedding have no sign.
        is_table = weight.dtype == np.uint8
        integers = (weight.astype(np.int16) - 128) / embedding_scale if is_table else weight
        weight = integers * scale.reshape(-1, 1)
    return weight.astype(np.float32)


def _names(model: Transformer) -> dict[Tensor, list[str]]:
    """Lists all names of each weight; a tied one has several."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return names
