"""``seqserve export``: the command line of :mod:`seqserve_export.export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option, parse
from seqserve_export.precision import Caches, Precision, Scales
from seqserve_model.waiting import let_threads_sleep
from seqserve_model.weights import WEIGHTS_HELP, Weights

_EPILOG = """\
examples:
  seqserve export runs/en-de --name en-de --description "English to German"
  seqserve export runs/en-de --name en-de --model-version 2 --precision int8
  seqserve export runs/mine --name mine --data held-out.tsv --sentences 1000"""


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
    let_threads_sleep()
    from seqserve_export.export import export

    place = export(options)
    megabytes = sum(file.stat().st_size for file in place.iterdir()) / 1e6
    print(
        f"{place} ({options.precision.value}, {megabytes:.1f} MB): ready to serve; try: "
        f"seqserve serve --model-repository {options.model_repository} "
        f"--default-model {options.name}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
