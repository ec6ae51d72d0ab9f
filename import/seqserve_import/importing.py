"""Turns a checkpoint into an artifact that a server can load."""

import random
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from seqserve.errors import OptionError
from seqserve.files import read_text
from seqserve_export.artifact import Description, declared, new_place
from seqserve_export.calibration import calibrate, choose_scales
from seqserve_export.options import Precision, Scales
from seqserve_export.parity import HeldOut
from seqserve_export.pipeline import Rounding, write_artifact
from seqserve_export.quantization import Calibration, Range, quantize_in_place
from seqserve_export.shortlist import NewShortlist
from seqserve_export.tolerance import ParityError
from seqserve_import.checkpoint import Checkpoint
from seqserve_import.generation import recommended_options
from seqserve_import.languages import pair_of
from seqserve_import.loading import Loaded, load, load_model, open_checkpoint
from seqserve_import.marian_checkpoint import shortlist_of
from seqserve_import.options import ImportOptions
from seqserve_import.tokenizers.convert import check_tokens, pieces_of
from seqserve_model.checkpoint import current_commit
from seqserve_model.config import TransformerConfig
from seqserve_model.cpu import trim_memory
from seqserve_model.data import Pair
from seqserve_model.decoding import greedy_in_batches
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Provenance, Template
from seqserve_server.text.tokenizer import Tokenizer

_MAX_DECODING_LENGTH = 128
"""Target tokens of a sentence of the proof: text without sense may never come to an end."""
_SHORTEST_WRITTEN, _LONGEST_WRITTEN = 2, 24
_MAX_WRITTEN = 64
_BATCH_ROWS = 32


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


def read_sentences(path: Path, limit: int) -> list[Pair]:
    """Reads sentences, one a line, each with its translation after a TAB if it has one.

    Raises:
        OptionError: The file cannot be read, or is empty.
    """
    lines = read_text(path, "--data").splitlines()
    columns = [line.split("\t") for line in lines if line.strip()][:limit]
    if not columns:
        raise OptionError(f"--data: {path}: holds no sentence")
    return [Pair(cells[0].strip(), "".join(cells[1:2]).strip()) for cells in columns]


def write_sentences(
    model: Transformer, tokenizer: Tokenizer, unusable: Collection[int], limit: int
) -> list[Pair]:
    """Lets a model write sentences: half are drawn words, half its answers to them.

    Such text says nothing of how well it translates, but it brings every part of the network to
    work, which is enough to compare two computations.

    Args:
        unusable: Tokens that are not drawn. limit: Maximum number of sentences; never more than 64.

    Raises:
        OptionError: All that it writes is empty.
    """
    draw, limit = random.Random(1), min(limit, _MAX_WRITTEN)
    tokens = [
        token
        for token in range(tokenizer.vocabulary_size)
        if token not in unusable and token not in tokenizer.target.hidden_ids
    ]
    longest = min(_LONGEST_WRITTEN, model.config.max_source_length - 1)
    texts = [
        tokenizer.decode(draw.choices(tokens, k=draw.randint(_SHORTEST_WRITTEN, longest)))
        for _ in range(-(-limit // 2))
    ]
    sources = [
        tokenizer.truncate(ids, model.config.max_source_length)
        for ids in tokenizer.encode_batch(texts)
        if ids  # a model may read no end token
    ]
    written = greedy_in_batches(model, sources, longest, _BATCH_ROWS)
    texts += [tokenizer.decode(ids) for ids in written]
    usable = dict.fromkeys(text for text in map(str.strip, texts) if text)
    if not usable:
        raise OptionError("--data: the model writes no text to prove it with; name a file")
    return [Pair(text, "") for text in usable][:limit]


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
