"""Opens a checkpoint, and builds our model from it, with its tokenizer and its settings.

Each weight is found by its name: none is missing and none left over.
"""

import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from seqserve.errors import OptionError
from seqserve_import.adapter import AdaptedCheckpoint
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.ctranslate2_checkpoint import CTranslate2Checkpoint, model_folder
from seqserve_import.families import family_of
from seqserve_import.family import Change, Family
from seqserve_import.files import CheckpointError
from seqserve_import.generation import not_taken
from seqserve_import.languages import template_of
from seqserve_import.marian_checkpoint import MarianCheckpoint, MarianFolder
from seqserve_import.tokenizers.convert import convert, convert_target
from seqserve_import.tokenizers.special import language_of
from seqserve_model.config import TransformerConfig
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Template
from seqserve_server.contract.errors import truncated_list
from seqserve_server.text.tokenizer import Tokenizer

_FILLERS = ("<mask", "<unused", "madeupword")
"""Beginnings of tokens that mean nothing in a target."""
_OTHER_HEADS = ("classification_head.", "classifier.", "qa_outputs.", "score.")


def open_checkpoint(folder: Path, adapter: Path | None = None) -> Checkpoint:
    """Opens a folder of Hugging Face, Marian, CTranslate2 or Argos, perhaps with a LoRA of PEFT.

    Raises:
        CheckpointError: It is no checkpoint, a file is missing or damaged, or the adapter is wrong.
    """
    files, model = MarianFolder.find(folder), model_folder(folder)
    if adapter and (files or model):
        raise CheckpointError(f"{folder}: takes no --adapter; only a folder of Hugging Face does")
    if files:
        return MarianCheckpoint(files)
    if model:
        return CTranslate2Checkpoint(folder, model)
    return AdaptedCheckpoint(folder, adapter) if adapter else Checkpoint(folder)


class Loaded(NamedTuple):
    """A checkpoint as our model, in evaluation mode."""

    model: Transformer
    family: Family
    tokenizer: Tokenizer
    suppressed: list[int]
    """Tokens that the model cannot generate."""
    template: Template | None
    """Its special tokens and languages."""
    input_limits: dict[str, float]
    """The largest absolute inputs of projections, as far as the checkpoint has them."""
    symbols: set[str]
    """Tokens that texts may spell, in addition to the pieces of the vocabulary."""
    notes: list[str]
    """Settings of the checkpoint that are not taken over, for the user."""


def load(checkpoint: Checkpoint, max_source_length: int | None = None) -> Loaded:
    """Builds the model of a checkpoint, and its tokenizer.

    Args:
        max_source_length: In tokens, if the checkpoint has no limit.

    Raises:
        CheckpointError: A part of the checkpoint is missing, left over or does not fit.
        OptionError: The checkpoint already has a limit.
    """
    family = family_of(checkpoint)
    if max_source_length is not None:
        family = family.with_max_source_length(max_source_length)
    check_tables(checkpoint, family)
    config, kind = family.config, checkpoint.config.text("model_type")
    folder = checkpoint.folder
    source_size = config.source_vocabulary_size or None
    raw = convert(folder, kind, config.source_tokens)
    target = convert_target(folder, kind, config.vocabulary_size)
    try:
        tokenizer = Tokenizer(raw, config.vocabulary_size, target, source_size=source_size)
    except OptionError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    if tokenizer.eos_id != config.eos_id:
        raise checkpoint.generation.wrong(
            "eos_token_id", f"is not the id of </s> in the tokenizer, {tokenizer.eos_id}"
        )
    suppressed = _suppressed(checkpoint, tokenizer, config.vocabulary_size)
    family = family.suppress_tokens(suppressed, tokenizer.unk_id)
    model = load_model(checkpoint, family)
    added = {token.content: token.special for token in raw.get_added_tokens_decoder().values()}
    template = template_of(checkpoint, tokenizer.source.spelled, tokenizer.target.spelled, added)
    limits = input_limits(checkpoint, family, model)
    return Loaded(
        model=model,
        family=family,
        tokenizer=tokenizer,
        suppressed=suppressed,
        template=template,
        input_limits=limits,
        symbols={token for token, is_special in added.items() if not is_special},
        notes=_notes(checkpoint, config, template, added),
    )


def _notes(
    checkpoint: Checkpoint,
    config: TransformerConfig,
    template: Template | None,
    added: Collection[str],
) -> list[str]:
    names = not_taken(checkpoint.generation, config.eos_id)
    notes = [f"not taken over        {', '.join(names)}"] if names else []
    known = template or Template()
    taken = {*known.source_languages.values(), *known.target_languages.values()}
    if others := sorted(token for token in added if token not in taken and language_of(token)):
        notes.append(f"not used as languages {truncated_list(others)}")
    return notes


def _suppressed(checkpoint: Checkpoint, tokenizer: Tokenizer, size: int) -> list[int]:
    """Lists the tokens that must not be generated.

    They are rows of the embeddings without a token, placeholder tokens, and tokens that the
    checkpoint's settings exclude. As in ``generate()``, the end token is never a bad word.
    """
    named, settings = tokenizer.target.spelled, checkpoint.recommended
    fillers = {token_id for token_id, token in named.items() if token.startswith(_FILLERS)}
    words = settings.number_lists("bad_words_ids")
    bad = {word[0] for word in words if len(word) == 1} - {tokenizer.eos_id}
    excluded = fillers | bad | {*settings.numbers("suppress_tokens")}
    return [token_id for token_id in range(size) if token_id not in named or token_id in excluded]


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
