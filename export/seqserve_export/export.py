"""Exports a training run to an artifact that a server can load."""

from functools import partial
from pathlib import Path

import torch

from seqserve.errors import OptionError
from seqserve_export.artifact import Description, declared, new_place
from seqserve_export.calibration import calibrate
from seqserve_export.options import ExportOptions, Precision
from seqserve_export.parity import HeldOut
from seqserve_export.pipeline import Rounding, write_artifact
from seqserve_export.quantization import Calibration, with_same_weights
from seqserve_model.checkpoint import RunDirectory, current_commit, load_run, read_json
from seqserve_model.data import Pair, read_pairs
from seqserve_model.recipe import LanguagesRecipe, Recipe
from seqserve_model.transformer import Transformer
from seqserve_server.artifact.records import Provenance
from seqserve_server.text.tokenizer import Tokenizer


def export(options: ExportOptions) -> Path:
    """Exports a run; returns the artifact's folder.

    Raises:
        OptionError: The run, the data or the place do not fit.
        ParityError: The artifact and the model differ; nothing was written.
    """
    # Before a long work begins.
    new_place(options.model_repository, options.name, options.model_version)
    torch.set_num_threads(options.threads)
    model, tokenizer = load_run(options.run, options.weights)
    run = RunDirectory(options.run)
    data = options.data or run.test
    held_out = HeldOut(
        pairs=_pairs(data, options.sentences), name=data.name, threads=options.threads
    )
    calibration = None
    if options.precision is Precision.INT8:
        text = options.calibration or run.validation
        calibration = _calibrated(model, tokenizer, text, options.calibration_sentences)
    return write_artifact(
        partial(with_same_weights, model),
        tokenizer,
        options.model_repository,
        _description(options, model),
        held_out,
        rounding=Rounding(
            precision=options.precision,
            scales=options.scales,
            caches=options.caches,
            calibration=calibration,
        ),
    )


def _pairs(data: Path, limit: int) -> list[Pair]:
    return read_pairs(data).pairs[:limit]


def _calibrated(model: Transformer, tokenizer: Tokenizer, data: Path, limit: int) -> Calibration:
    max_length = model.config.max_source_length
    encoded = [tokenizer.encode(pair.source) for pair in _pairs(data, limit)]
    sources = [ids for ids in encoded if len(ids) <= max_length]
    if not sources:
        raise OptionError(f"{data}: no sentence of at most {max_length} tokens to calibrate on")
    return calibrate(model, sources)


def _description(options: ExportOptions, model: Transformer) -> Description:
    path = RunDirectory(options.run).report
    training = read_json(path) if path.exists() else {}
    weights = sum(parameter.numel() for parameter in model.parameters())
    path = RunDirectory(options.run).recipe
    languages = Recipe.from_dict(read_json(path)).languages if path.exists() else LanguagesRecipe()
    return Description(
        name=options.name,
        version=options.model_version,
        description=options.description or f"{weights / 1e6:.1f} million weights",
        licence=options.licence,
        provenance=Provenance(
            command=str(training.get("command", "")),
            commit=str(training.get("commit", "")) or current_commit(),
            data_licence=options.data_licence,
            attribution=options.attribution,
            steps=int(training.get("steps", 0)),
        ),
        template=declared(
            None,
            options.source_language or languages.source,
            options.target_language or languages.target,
        ),
        generation=options.recommended(),
    )
