"""Builds our model from a checkpoint: each weight by its name, none missing and none left over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.family import Family
from seqserve_import.files import CheckpointError
from seqserve_model.transformer import Transformer

_OTHER_HEADS = ("classification_head.", "classifier.", "qa_outputs.", "score.")


def load_model(checkpoint: Checkpoint, family: Family) -> Transformer:
    """Builds the model in evaluation mode; it holds the only copy of its weights.

    Raises:
        CheckpointError: A weight is missing, left over or of another shape; the message names it.
    """
    with torch.device("meta"):  # so that no weight is drawn at random first
        model = Transformer(family.config)
    used: set[str] = set()
    for name, parameter in list(model.named_parameters()):
        theirs = their_name(name, family.names, family.first_layer)
        if theirs in checkpoint.names:
            used.add(theirs)
            tensor = _changed(family, name, checkpoint.tensor(theirs))
        elif name in family.computed:
            tensor = family.computed[name]
        else:
            raise CheckpointError(f"{checkpoint.folder}: the weight {theirs} is missing")
        if tensor.shape != parameter.shape:
            raise CheckpointError(
                f"{checkpoint.folder}: the weight {theirs} has the shape"
                f" {list(checkpoint.shape(theirs))}; by {checkpoint.config.path.name} it must make"
                f" {list(parameter.shape)}"
            )
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, nn.Parameter(tensor))
    if family.config.tied_output:
        model.output_projection.weight = model.target_embedding.weight
    _check_left_over(checkpoint, family, used)
    return model.eval()


def input_limits(checkpoint: Checkpoint, family: Family, model: Transformer) -> dict[str, float]:
    """Returns the largest absolute inputs that a checkpoint knows, by our names of projections."""
    limits = checkpoint.input_limits
    linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    theirs = {
        name: their_name(f"{name}.weight", family.names, family.first_layer) for name in linear
    }
    return {ours: limits[name] for ours, name in theirs.items() if name in limits}


def their_name(ours: str, names: Mapping[str, str], first_layer: int) -> str:
    """Finds the name of one of our weights in a checkpoint, by that of its module if need be.

    Args:
        ours: Our name.
        names: As :attr:`Family.names`.
        first_layer: As :attr:`Family.first_layer`.
    """
    layer = re.search(r"_layers\.(\d+)", ours)
    pattern = ours.replace(layer[0], "_layers.*") if layer else ours
    module, _, leaf = pattern.rpartition(".")
    theirs = names.get(pattern) or f"{names.get(module, module)}.{leaf}"
    return theirs.replace("*", str(int(layer[1]) + first_layer)) if layer else theirs


def _changed(family: Family, name: str, tensor: Tensor) -> Tensor:
    for pattern, change in family.changes.items():
        if fnmatchcase(name, pattern):
            return change(tensor)
    return tensor


def _check_left_over(checkpoint: Checkpoint, family: Family, used: set[str]) -> None:
    for name in sorted(checkpoint.names - used):
        if name.startswith(_OTHER_HEADS):
            raise CheckpointError(
                f"{checkpoint.folder}: the weight {name} is that of a model which does not generate"
                " text; take a checkpoint of the same type that ends in ForConditionalGeneration"
            )
        if not any(fnmatchcase(name, pattern) for pattern in family.unused):
            raise CheckpointError(
                f"{checkpoint.folder}: the weight {name} is left over:"
                f" {checkpoint.config.path.name} tells of a network without it, or of a kind of"
                " model that is not known here"
            )
