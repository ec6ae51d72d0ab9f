"""``seqserve export``: from a training run to an artifact that a server can load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import torch

from seqserve.errors import OptionError
from seqserve.options import option, parse
from seqserve_export.artifact import Description, write_artifact
from seqserve_export.calibration import calibrate
from seqserve_export.parity import judge, verify
from seqserve_export.quantization import Caches, Scales, quantize
from seqserve_export.self_test import choose_self_test
from seqserve_model.checkpoint import RunDirectory, Weights, load_run, read_json
from seqserve_model.data import read_pairs
from seqserve_model.transformer import Transformer
from seqserve_server.manifest import Provenance, Verification
from seqserve_server.tokenizer import Tokenizer

_EPILOG = """\
examples:
  seqserve export runs/en-de --name en-de --description "English to German"
  seqserve export runs/en-de --name en-de --model-version 2 --precision int8
  seqserve export runs/mine --name mine --data held-out.tsv --sentences 1000
"""


class Precision(Enum):
    """In what the artifact computes."""

    FP32 = "fp32"
    INT8 = "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Options of ``seqserve export``."""

    run: Path = option(help="Directory of a training run.", positional=True)
    name: str = option(help="Name of the model, by which clients call it.")
    model_version: int = option(1, help="Version; the highest one is served.", minimum=1)
    model_repository: Path = option(Path("models"), help="Folder of models to export into.")
    description: str = option("", help="What the model is for, in one line.")
    licence: str = option("", help="Licence of the model, an SPDX identifier.")
    data_licence: str = option("", help="Licence of the data it was trained on.")
    attribution: str = option("", help="Whom the licence of the data asks to name.")
    weights: Weights = option(Weights.RESULT, help="Which weights of the run to take.")
    precision: Precision = option(
        Precision.FP32,
        help="int8 is about twice as fast, and refused where it costs more than 0.2 BLEU.",
    )
    scales: Scales = option(
        Scales.STATIC,
        help="int8: scales of inputs, from calibration or of each row as it comes; row is a little"
        " more exact, static faster.",
    )
    caches: Caches = option(
        Caches.FLOAT,
        help="int8: keys and values; int8 pays for wide models with many and long rows.",
    )
    calibration: Path | None = option(
        None, help="int8: TSV of real sentences; the run's validation set where not given."
    )
    calibration_sentences: int = option(1_000, help="int8: most sentences of it.", minimum=1)
    data: Path | None = option(
        None, help="TSV of real sentences for the proof; the run's test set where not given."
    )
    sentences: int = option(2_000, help="Most sentences of the proof.", minimum=1)
    threads: int = option(2, help="Threads of the proof.", minimum=1)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve export``."""
    options = parse(
        ExportOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve export",
        description=(
            "Exports a trained model to ONNX and proves it: torch and the artifact both translate\n"
            "real sentences, and nothing is written unless they agree token by token."
        ),
        epilog=_EPILOG,
    )
    torch.set_num_threads(options.threads)
    place = export(options)
    print(f"{place}: ready to serve; try: seqserve serve --model-repository {place.parent.parent}")
    return 0


def export(options: ExportOptions) -> Path:
    """Exports a run as the options say; gives the artifact's folder.

    Raises:
        OptionError: The run, the data or the place do not fit.
        ParityError: The artifact does not give what the model gives; nothing was written.
    """
    original, tokenizer = load_run(options.run, options.weights)
    run = RunDirectory(options.run)
    data = options.data or run.test
    pairs = read_pairs(data).pairs[: options.sentences]
    if options.precision is Precision.INT8:
        model = _quantized(options, original, tokenizer, options.calibration or run.validation)
    else:
        model = original

    def prove(folder: Path) -> Verification:
        verification = verify(
            model, folder, pairs, data=data.name, threads=options.threads, original=original
        )
        report(verification)
        judge(verification, options.precision.value)
        return verification

    return write_artifact(
        model,
        tokenizer,
        options.model_repository,
        _description(options, original),
        prove,
        lambda folder: choose_self_test(model, folder, pairs, threads=options.threads),
    )


def _quantized(
    options: ExportOptions, model: Transformer, tokenizer: Tokenizer, data: Path
) -> Transformer:
    pairs = read_pairs(data).pairs[: options.calibration_sentences]
    longest = model.config.max_source_length
    # One that is too long tells nothing that shorter ones do not.
    sources = [ids for pair in pairs if len(ids := tokenizer.encode(pair.source)) <= longest]
    if not sources:
        raise OptionError(f"{data}: no sentence of at most {longest} tokens to calibrate on")
    return quantize(model, calibrate(model, sources), options.scales, options.caches)


def report(verification: Verification) -> None:
    """Prints what the proof found."""
    print(
        f"sentences equal       {verification.sentences_equal} of {verification.sentences}\n"
        f"top-1 agreement       {verification.top1_agreement:.2%}\n"
        f"largest difference    {verification.largest_logit_difference:.2e}\n"
        f"BLEU torch, artifact  {verification.bleu_torch:.2f}, {verification.bleu_artifact:.2f}\n"
        f"chrF torch, artifact  {verification.chrf_torch:.2f}, {verification.chrf_artifact:.2f}"
    )


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
            commit=_commit(),
            data_licence=options.data_licence,
            attribution=options.attribution,
            steps=int(training.get("steps", 0)),
        ),
    )


def _commit() -> str:
    """Names the commit of the code, where it runs from a clone."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return result.stdout.strip()
