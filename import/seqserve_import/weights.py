"""Builds our model from a checkpoint: each weight by its name, none missing and none left over."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import torch
from torch import nn

from seqserve_import.checkpoint import Checkpoint
from seqserve_import.family import Change, Family
from seqserve_import.files import CheckpointError
from seqserve_model.transformer import Transformer

_OTHER_HEADS = ("classification_head.", "classifier.", "qa_outputs.", "score.")


def load_model(checkpoint: Checkpoint, family: Family) -> Transformer:
    """Builds the model in evaluation mode; it holds the only copy of its weights.

    Raises:
        CheckpointError: A weight is missing, left over, of another shape or not finite; the message
            names it.
    """
    with torch.device("meta"):  # so that no weight is drawn at random first
        model = Transformer(family.config)
    used: set[str] = set()
    for name, parameter in list(model.named_parameters()):
        theirs = their_name(name, family.names, family.first_layer)
        if theirs in checkpoint.names:
            used.add(theirs)
            try:
                tensor, change = checkpoint.tensor(theirs), _changed_by(family, name)
                tensor = change(tensor) if change else tensor
            except (IndexError, RuntimeError):  # of other dimensions than the change takes
                raise _misshapen(checkpoint, theirs, "another one") from None
        elif name in family.computed:
            tensor = family.computed[name]
        else:
            raise checkpoint.fault(f"the weight {theirs} is missing")
        if tensor.shape != parameter.shape:
            raise _misshapen(checkpoint, theirs, list(parameter.shape))
        if theirs in checkpoint.names and name != "logits_bias":  # where it excludes a token
            _check_finite(checkpoint, theirs)
        module, _, leaf = name.rpartition(".")
        setattr(model.get_submodule(module), leaf, nn.Parameter(tensor))
    if family.config.tied_output:
        model.output_projection.weight = model.target_embedding.weight
    _check_left_over(checkpoint, family, used)
    return model.eval()


def _check_finite(checkpoint: Checkpoint, name: str) -> None:
    # A mapping of its own gives the memory of what was read back. Both are NaN if any number is.
    if not all(map(torch.isfinite, torch.aminmax(checkpoint.tensor(name)))):
        raise checkpoint.fault(
            f"the weight {name} has numbers that are not finite (NaN or"
            " infinite); take another copy or an earlier state of the checkpoint"
        )


def check_tables(checkpoint: Checkpoint, family: Family) -> None:
    """Refuses settings that tell of more tokens than the checkpoint has embeddings for.

    It comes before the tokenizer, which may have to name all tokens.
    """
    sizes = {"source": family.config.source_tokens, "target": family.config.vocabulary_size}
    for side, size in sizes.items():
        ours = f"{side}_embedding.weight"
        theirs = their_name(ours, family.names, family.first_layer)
        shape = checkpoint.shape(theirs)
        if len(shape) != 2 or (_changed_by(family, ours) is None and shape[0] < size):
            raise _misshapen(checkpoint, theirs, [size, family.config.width])


def input_limits(checkpoint: Checkpoint, family: Family, model: Transformer) -> dict[str, float]:
    """Returns the largest absolute inputs that a checkpoint knows, by our names of projections."""
    limits = checkpoint.input_limits
    linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
    theirs = {
        name: their_name(f"{name}.weight", family.names, family.first_layer) for name in linear
    }
    return {ours: limits[name] for ours, name in theirs.items() if name in limits}


def their_name(ours: str, names: Mapping[str, str], first_layer: int) -> str:
    """Finds the name of our weight in a checkpoint, if necessary by the name of its module."""
    layer = re.search(r"_layers\.(\d+)", ours)
    pattern = ours.replace(layer[0], "_layers.*") if layer else ours
    module, _, leaf = pattern.rpartition(".")
    theirs = names.get(pattern) or f"{names.get(module, module)}.{leaf}"
    return theirs.replace("*", str(int(layer[1]) + first_layer)) if layer else theirs


def _misshapen(checkpoint: Checkpoint, name: str, shape: list[int] | str) -> CheckpointError:
    return checkpoint.fault(
        f"the weight {name} has the shape {list(checkpoint.shape(name))};"
        f" by {checkpoint.config.path.name} it must make {shape}"
    )


def _changed_by(family: Family, name: str) -> Change | None:
    changes = family.changes.items()
    return next((change for pattern, change in changes if fnmatchcase(name, pattern)), None)


def _check_left_over(checkpoint: Checkpoint, family: Family, used: set[str]) -> None:
    for name in sorted(checkpoint.names - used):
        if name.startswith(_OTHER_HEADS):
            raise checkpoint.fault(
                f"the weight {name} belongs to a model that does not"
                " generate text; take a checkpoint of the same type that ends in"
                " ForConditionalGeneration"
            )
        if not any(fnmatchcase(name, pattern) for pattern in family.unused):
            raise checkpoint.fault(
                f"the weight {name} is left over:"
                f" {checkpoint.config.path.name} tells of a network without it, or of a kind of"
                " model that is not known here"
            )
