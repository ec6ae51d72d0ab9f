"""Exports a training run to an artifact that a server can load."""

from __future__ import annotations

from pathlib import Path

import torch

from seqserve.errors import OptionError
from seqserve_export.artifact import Description, write_artifact
from seqserve_export.calibration import calibrate
from seqserve_export.halving import halve
from seqserve_export.options import ExportOptions
from seqserve_export.parity import Proof, verify
from seqserve_export.precision import Precision
from seqserve_export.quantization import quantize
from seqserve_export.tolerance import judge
from seqserve_model.checkpoint import RunDirectory, load_run, read_json
from seqserve_model.data import read_pairs
from seqserve_model.options import search_of
from seqserve_model.revision import current_commit
from seqserve_model.transformer import Transformer
from seqserve_server.contract.manifest import Provenance, Quantization, Verification
from seqserve_server.contract.tokenizer import Tokenizer


def export(options: ExportOptions) -> Path:
    """Exports a run; returns the artifact's folder.

    Raises:
        OptionError: The run, the data or the place do not fit.
        ParityError: The artifact and the model differ; nothing was written.
    """
    torch.set_num_threads(options.threads)
    original, tokenizer = load_run(options.run, options.weights)
    run = RunDirectory(options.run)
    data = options.data or run.test
    pairs = read_pairs(data).pairs[: options.sentences]
    model = original
    if options.precision is Precision.INT8:
        model = _quantized(options, original, tokenizer, options.calibration or run.validation)
    elif options.precision is Precision.FP16:
        model = halve(original)

    def prove(folder: Path) -> Proof:
        proof = verify(
            lambda: model,
            folder,
            pairs,
            data=data.name,
            threads=options.threads,
            open_original=lambda: original,
        )
        report(proof.verification)
        judge(proof.verification, options.precision.value)
        return proof

    description = _description(options, original)
    return write_artifact(lambda: model, tokenizer, options.model_repository, description, prove)


def _quantized(
    options: ExportOptions, model: Transformer, tokenizer: Tokenizer, data: Path
) -> Transformer:
    pairs = read_pairs(data).pairs[: options.calibration_sentences]
    max_length = model.config.max_source_length
    sources = [ids for pair in pairs if len(ids := tokenizer.encode(pair.source)) <= max_length]
    if not sources:
        raise OptionError(f"{data}: no sentence of at most {max_length} tokens to calibrate on")
    return quantize(model, calibrate(model, sources), options.scales, options.caches)


def report(verification: Verification) -> None:
    """Prints the results of the proof."""
    print(
        f"sentences equal       {verification.sentences_equal} of {verification.sentences}\n"
        f"top-1 agreement       {verification.top1_agreement:.2%}\n"
        f"log-probs differ by   {verification.max_logprob_difference:.2e} at most"
    )
    if verification.bleu_signature:
        print(f"BLEU torch, artifact  {verification.bleu_torch}, {verification.bleu_artifact}")
        print(f"chrF torch, artifact  {verification.chrf_torch}, {verification.chrf_artifact}")


def _description(options: ExportOptions, model: Transformer) -> Description:
    path = RunDirectory(options.run).report
    training = read_json(path) if path.exists() else {}
    weights = sum(parameter.numel() for parameter in model.parameters())
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
        generation=search_of(options),
        quantization=_quantization(options),
    )


def _quantization(options: ExportOptions) -> Quantization | None:
    if options.precision is not Precision.INT8:
        return None
    return Quantization(scales=options.scales.value, caches=options.caches.value)
