"""Turns a checkpoint into an artifact that a server can load."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from seqserve.errors import OptionError
from seqserve_export.artifact import Description, declared, new_place
from seqserve_export.calibration import calibrate, choose_scales
from seqserve_export.options import Precision, Scales
from seqserve_export.parity import HeldOut
from seqserve_export.pipeline import Rounding, write_artifact
from seqserve_export.quantization import Calibration, Range, quantize_in_place
from seqserve_export.shortlist import NewShortlist
from seqserve_export.tolerance import ParityError
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.families import family_of
from seqserve_import.family import Family
from seqserve_import.files import CheckpointError
from seqserve_import.folders import open_checkpoint
from seqserve_import.generation import not_taken, recommended_options
from seqserve_import.languages import pair_of, template_of
from seqserve_import.marian.checkpoint import shortlist_of
from seqserve_import.options import ImportOptions
from seqserve_import.sentences import read_sentences, write_sentences
from seqserve_import.tokenizers.convert import check_tokens, convert, convert_target, pieces_of
from seqserve_import.tokenizers.special import language_of
from seqserve_import.weights import check_tables, input_limits, load_model
from seqserve_model.checkpoint import current_commit
from seqserve_model.config import TransformerConfig
from seqserve_model.cpu import trim_memory
from seqserve_model.data import Pair
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Provenance, Template
from seqserve_server.contract.errors import truncated_list
from seqserve_server.text.tokenizer import Tokenizer

_MAX_DECODING_LENGTH = 128
"""Target tokens of a sentence of the proof: text without sense may never come to an end."""
_FILLERS = ("<mask", "<unused", "madeupword")
"""Beginnings of tokens that mean nothing in a target."""


def import_checkpoint(options: ImportOptions) -> Path:
    """Imports a checkpoint; returns the artifact's folder.

    Its weights are mapped, and read again for each stage. So their memory is needed only once, for
    torch or for ONNX Runtime.

    Raises:
        CheckpointError: The checkpoint is damaged, or of a kind that cannot be imported.
        OptionError: The data or the place do not fit.
        ParityError: The artifact and the model differ; nothing was written.
    """
    # Before a long work begins.
    new_place(options.model_repository, options.name, options.model_version)
    torch.set_num_threads(options.threads)
    checkpoint = open_checkpoint(options.folder, options.adapter)
    loaded = load(checkpoint, options.max_source_length)
    for note in loaded.notes:
        print(note)
    family, shortlist = loaded.family, shortlist_of(checkpoint)
    held_out = _held_out(options, loaded)
    _check_tokens(checkpoint, loaded, held_out.pairs)
    description = _description(options, checkpoint, loaded)
    rounding = _rounding(options, loaded, held_out.pairs)
    tokenizer = loaded.tokenizer
    # Each stage has its own.
    del checkpoint, loaded

    def open_model() -> Transformer:
        trim_memory()
        return load_model(open_checkpoint(options.folder, options.adapter), family)

    try:
        return write_artifact(
            open_model,
            tokenizer,
            options.model_repository,
            description,
            held_out,
            rounding=rounding,
            shortlist=NewShortlist(shortlist, "the checkpoint") if shortlist else None,
        )
    except ParityError as error:
        advice = "if only a few sentences differ, name more with --data and --sentences"
        if not options.data:
            advice = (
                "the model's own sentences make little sense, so that rounding decides more"
                " often: name real ones with --data"
            )
        raise ParityError(f"{error}; {advice}") from None


def _check_tokens(checkpoint: Checkpoint, loaded: Loaded, pairs: Sequence[Pair]) -> None:
    path = pieces_of(checkpoint.folder, checkpoint.config.text("model_type"))
    if path is not None:
        texts = [pair.source for pair in pairs]
        if line := check_tokens(path, loaded.tokenizer, loaded.symbols, texts):
            print(line)


def _held_out(options: ImportOptions, loaded: Loaded) -> HeldOut:
    if options.data:
        pairs = read_sentences(options.data, options.sentences)
    else:
        pairs = write_sentences(
            loaded.model, loaded.tokenizer, loaded.suppressed, options.sentences
        )
    return HeldOut(
        pairs=[pair for pair in pairs if loaded.tokenizer.encode(pair.source)],
        name=options.data.name if options.data else "written by the model",
        max_decoding_length=_longest(loaded.model.config),
        threads=options.threads,
    )


def _rounding(options: ImportOptions, loaded: Loaded, pairs: Sequence[Pair]) -> Rounding:
    """Chooses the scales of int8; the weights of the model are not to be used after that."""
    if options.precision is not Precision.INT8:
        return Rounding(precision=options.precision)
    model, tokenizer = loaded.model, loaded.tokenizer
    limit = model.config.max_source_length
    sources = [tokenizer.truncate(tokenizer.encode(pair.source), limit) for pair in pairs]
    calibration = _calibrated(loaded, sources)
    # In place, because the weights at full precision are needed no more.
    rounded = quantize_in_place(model, calibration, Scales.STATIC, options.caches)
    scales, reason = choose_scales(rounded, calibration, sources)
    return Rounding(
        precision=options.precision,
        scales=scales,
        caches=options.caches,
        calibration=calibration,
        reason=reason,
    )


def _longest(config: TransformerConfig) -> int:
    return min(_MAX_DECODING_LENGTH, config.max_target_length)


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
    template = template_of(checkpoint, tokenizer.source_vocabulary, tokenizer.vocabulary, added)
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
    named, settings = tokenizer.vocabulary, checkpoint.recommended
    fillers = {token_id for token_id, token in named.items() if token.startswith(_FILLERS)}
    words = settings.number_lists("bad_words_ids")
    bad = {word[0] for word in words if len(word) == 1} - {tokenizer.eos_id}
    excluded = fillers | bad | {*settings.numbers("suppress_tokens")}
    return [token_id for token_id in range(size) if token_id not in named or token_id in excluded]


def _calibrated(loaded: Loaded, sources: Sequence[list[int]]) -> Calibration:
    """Measures inputs and caches on sources; what the makers measured goes before that."""
    calibration = calibrate(loaded.model, sources, _longest(loaded.model.config))
    inputs = {
        name: Range(0.0 if calibration.inputs[name].low >= 0 else -largest, largest)
        for name, largest in loaded.input_limits.items()
    }
    return replace(calibration, inputs=calibration.inputs | inputs)


def _description(options: ImportOptions, checkpoint: Checkpoint, loaded: Loaded) -> Description:
    model = loaded.model
    weights = sum(parameter.numel() for parameter in model.parameters())
    kind = checkpoint.config.text("model_type")
    adapter = f" --adapter {options.adapter.name}" if options.adapter else ""
    return Description(
        name=options.name,
        version=options.model_version,
        description=options.description or f"{kind}, {weights / 1e6:.1f} million weights",
        licence=options.licence,
        provenance=Provenance(
            command=f"seqserve import {options.folder.name}{adapter}",
            commit=current_commit(),
            data_licence=options.data_licence,
            attribution=options.attribution,
        ),
        template=_template(options, checkpoint, loaded.template),
        generation=options.recommended(
            recommended_options(
                checkpoint.recommended, loaded.tokenizer, model.config.max_target_length
            )
        ),
    )


def _template(
    options: ImportOptions, checkpoint: Checkpoint, template: Template | None
) -> Template | None:
    """Declares the languages of a checkpoint of one pair, where its texts do not name them."""
    known = (template or Template()).languages
    own = dict(zip(("source", "target"), pair_of(checkpoint), strict=True))
    source, target = ("" if known[role] else own[role] for role in own)
    return declared(template, options.source_language or source, options.target_language or target)
