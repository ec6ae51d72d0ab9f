"""Turns a checkpoint into an artifact that a server can load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from seqserve.errors import OptionError
from seqserve_export.artifact import Description, write_artifact
from seqserve_export.calibration import calibrate
from seqserve_export.export import report
from seqserve_export.lexicon.addition import add_shortlist
from seqserve_export.parity import ParityError, judge, verify
from seqserve_export.precision import Caches, Precision, Scales
from seqserve_export.quantization import Range, quantize
from seqserve_export.self_test import choose_self_test
from seqserve_import.checkpoint import Checkpoint, CheckpointError
from seqserve_import.families import family_of
from seqserve_import.generation import recommended_options
from seqserve_import.languages import template_of
from seqserve_import.marian.checkpoint import open_checkpoint, shortlist_of
from seqserve_import.options import ImportOptions
from seqserve_import.sentences import read_sentences, write_sentences
from seqserve_import.tokenizers.convert import convert, convert_target
from seqserve_import.weights import input_limits, load_model
from seqserve_model.data import Pair
from seqserve_model.revision import current_commit
from seqserve_model.transformer import Transformer
from seqserve_server.contract.manifest import Manifest, Provenance, Verification
from seqserve_server.contract.template import Template
from seqserve_server.contract.tokenizer import Tokenizer

_MAX_DECODING_LENGTH = 128
"""Target tokens of a sentence of the proof: text without sense may never come to an end."""
_FILLERS = ("<mask", "<unused", "madeupword")
"""Beginnings of tokens that stand for nothing in a target."""


def import_checkpoint(options: ImportOptions) -> Path:
    """Imports a checkpoint; returns the artifact's folder.

    Raises:
        CheckpointError: The checkpoint is damaged, or of a kind that cannot be imported.
        OptionError: The data or the place do not fit.
        ParityError: The artifact and the model differ; nothing was written.
    """
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(options.folder)
    loaded = load(checkpoint)
    original, tokenizer, shortlist = loaded.model, loaded.tokenizer, shortlist_of(checkpoint)
    if options.data:
        pairs = read_sentences(options.data, options.sentences)
    else:
        pairs = write_sentences(original, tokenizer, loaded.suppressed, options.sentences)
    model = original
    if options.precision is Precision.INT8:
        model = _quantized(loaded, pairs)
    longest = min(_MAX_DECODING_LENGTH, original.config.max_target_length)
    data = options.data.name if options.data else "written by the model"

    def prove(folder: Path) -> Verification:
        verification = verify(
            model,
            folder,
            pairs,
            data=data,
            threads=options.threads,
            original=original,
            max_decoding_length=longest,
        )
        report(verification)
        try:
            judge(verification, options.precision.value)
        except ParityError as error:
            if options.data or options.precision is Precision.FP32:
                raise
            raise ParityError(
                f"{error}; the model's own sentences make little sense, so that rounding decides"
                " more often: name real ones with --data"
            ) from None
        return verification

    def finish(folder: Path, manifest: Manifest) -> None:
        if shortlist:
            add_shortlist(
                folder,
                manifest,
                shortlist,
                pairs,
                origin="the checkpoint",
                data=data,
                threads=options.threads,
                max_decoding_length=longest,
            )

    return write_artifact(
        model,
        tokenizer,
        options.model_repository,
        _description(options, checkpoint, loaded),
        prove,
        lambda folder: choose_self_test(
            model, folder, pairs, threads=options.threads, max_decoding_length=longest
        ),
        finish,
    )


class Loaded(NamedTuple):
    """A checkpoint as our model, in evaluation mode."""

    model: Transformer
    tokenizer: Tokenizer
    suppressed: list[int]
    """Tokens that the model cannot generate."""
    template: Template | None
    """What it reads and writes beside its texts."""
    input_limits: dict[str, float]
    """The largest absolute inputs of projections, as far as the checkpoint has them."""


def load(checkpoint: Checkpoint) -> Loaded:
    """Builds the model of a checkpoint, and its tokenizer.

    Raises:
        CheckpointError: A part of the checkpoint is missing, left over or does not fit.
    """
    family = family_of(checkpoint)
    config, kind = family.config, checkpoint.config.text("model_type")
    folder = checkpoint.folder
    raw, target = convert(folder, kind), convert_target(folder, kind)
    source_size = config.source_vocabulary_size or None
    try:
        tokenizer = Tokenizer(raw, config.vocabulary_size, target, source_size=source_size)
    except OptionError as error:
        raise CheckpointError(f"{folder}: {error}") from None
    suppressed = _suppressed(checkpoint, tokenizer.vocabulary, config.vocabulary_size)
    model = load_model(checkpoint, family.without(suppressed, tokenizer.unk_id))
    template = template_of(checkpoint, tokenizer.source_vocabulary, tokenizer.vocabulary)
    return Loaded(model, tokenizer, suppressed, template, input_limits(checkpoint, family, model))


def _suppressed(checkpoint: Checkpoint, named: Mapping[int, str], size: int) -> list[int]:
    """Lists the tokens that must not be generated.

    They are rows of the embeddings that no token has, tokens that stand for nothing, and those that
    the checkpoint's own settings exclude.
    """
    nameless = set(range(size)) - named.keys()
    fillers = {
        token_id
        for token_id, token in named.items()
        if token_id < size and token.startswith(_FILLERS)
    }
    generation = checkpoint.generation
    words = generation.number_lists("bad_words_ids")
    excluded = {
        *generation.numbers("suppress_tokens"),
        *(word[0] for word in words if word[1:] == []),
    }
    return sorted(nameless | fillers | excluded)


def _quantized(loaded: Loaded, pairs: Sequence[Pair]) -> Transformer:
    model, tokenizer = loaded.model, loaded.tokenizer
    limit = model.config.max_source_length
    sources = [tokenizer.truncate(tokenizer.encode(pair.source), limit) for pair in pairs]
    found = calibrate(model, sources, min(_MAX_DECODING_LENGTH, model.config.max_target_length))
    # What the makers measured on their texts goes before what these sentences show.
    inputs = {
        name: Range(0.0 if found.inputs[name].low >= 0 else -largest, largest)
        for name, largest in loaded.input_limits.items()
    }
    found = replace(found, inputs=found.inputs | inputs)
    return quantize(model, found, Scales.STATIC, Caches.FLOAT)


def _description(options: ImportOptions, checkpoint: Checkpoint, loaded: Loaded) -> Description:
    model = loaded.model
    weights = sum(parameter.numel() for parameter in model.parameters())
    kind = checkpoint.config.text("model_type")
    return Description(
        name=options.name,
        version=options.model_version,
        description=options.description or f"{kind}, {weights / 1e6:.1f} million weights",
        licence=options.licence,
        provenance=Provenance(
            command=f"seqserve import {options.folder.name}",
            commit=current_commit(),
            data_licence=options.data_licence,
            attribution=options.attribution,
        ),
        template=loaded.template,
        generation=recommended_options(
            checkpoint.generation, loaded.tokenizer, model.config.max_target_length
        ),
    )
