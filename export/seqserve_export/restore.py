"""Restores the torch model from an artifact: the scorer graph keeps all weights under their names.

So a shipped artifact is enough to compare with other engines, or to continue training.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from torch import Tensor

from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.manifest import Manifest


def restore(folder: Path) -> Transformer:
    """Builds the model of an fp32 artifact, in evaluation mode.

    Raises:
        ArtifactError: The artifact is not sound, or lacks weights.
    """
    manifest = Manifest.load(folder)
    if manifest.precision != "fp32":
        raise ArtifactError(f"{folder}: is {manifest.precision}; restore an fp32 artifact")
    graph = onnx.load(str(folder / "scorer.onnx")).graph
    arrays = {entry.name: onnx.numpy_helper.to_array(entry) for entry in graph.initializer}
    model = Transformer(TransformerConfig.from_dict(manifest.architecture.config))
    with torch.no_grad():
        for parameter, names in _names(model).items():
            stored = [f"model.{name}" for name in names if f"model.{name}" in arrays]
            if not stored:
                raise ArtifactError(f"{folder}/scorer.onnx: has no weight {names[0]}")
            parameter.copy_(torch.from_numpy(np.array(arrays[stored[0]])))
    return model.eval()


def _names(model: Transformer) -> dict[Tensor, list[str]]:
    """Lists all names of each weight; a tied one has several."""
    names: dict[Tensor, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(parameter, []).append(name)
    return names
