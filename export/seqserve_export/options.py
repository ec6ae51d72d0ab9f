"""Options of ``seqserve export``, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_export.precision import Caches, Precision, Scales
from seqserve_model.weights import WEIGHTS_HELP, Weights


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
    weights: Weights = option(Weights.RESULT, help=WEIGHTS_HELP)
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
