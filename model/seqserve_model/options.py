"""Options of ``seqserve train`` and ``seqserve evaluate``, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_model.weights import WEIGHTS_HELP, Weights


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Options of ``seqserve train``."""

    recipe: Path = option(help="TOML file of the recipe.", positional=True)
    out: Path | None = option(
        None, help="Directory of the run; runs/<name of the recipe> if not given."
    )
    resume: bool = option(False, help="Go on from the last checkpoint, if there is one.")
    fresh: bool = option(False, help="Remove an earlier training first.")
    device: str = option("cpu", help="Torch device, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads of torch; torch chooses if not given. One is best for small models.",
        minimum=1,
    )
    max_steps: int | None = option(None, help="Steps to train, instead of the recipe's.", minimum=1)
    time_limit_s: float | None = option(
        None, help="Stop after this time, with a checkpoint; --resume goes on.", minimum=0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """Options of ``seqserve evaluate``."""

    path: Path = option(help="Directory of a training run, or of an artifact.", positional=True)
    data: Path | None = option(
        None, help="TSV file of source and target; a run's own test set if not given."
    )
    source_column: int = option(0, help="Column of the source in the data.", minimum=0)
    target_column: int = option(1, help="Column of the target in the data.", minimum=0)
    weights: Weights = option(Weights.RESULT, help=WEIGHTS_HELP)
    limit: int | None = option(None, help="Score only the first pairs.", minimum=1)
    device: str = option("cpu", help="Torch device for a run, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads; if not given, torch chooses for a run, and an artifact gets one.",
        minimum=1,
    )
    translations: Path | None = option(None, help="File to write the translations to.")
    json: bool = option(False, help="Print one JSON object instead of text.")
