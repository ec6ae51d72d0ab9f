"""``seqserve evaluate``: the command line of :mod:`seqserve_model.evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option, parse
from seqserve_model.waiting import let_threads_sleep
from seqserve_model.weights import WEIGHTS_HELP, Weights

_EPILOG = """\
examples:
  seqserve evaluate runs/en-de
  seqserve evaluate runs/en-de --translations out.txt
  seqserve evaluate models/en-de/2 --data test.tsv"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions:
    """Options of ``seqserve evaluate``."""

    path: Path = option(help="Directory of a training run, or of an artifact.", positional=True)
    data: Path | None = option(
        None, help="TSV file of source and target; a run's own test set where not given."
    )
    source_column: int = option(0, help="Column of the source in the data.", minimum=0)
    target_column: int = option(1, help="Column of the target in the data.", minimum=0)
    weights: Weights = option(Weights.RESULT, help=WEIGHTS_HELP)
    limit: int | None = option(None, help="Score only the first pairs.", minimum=1)
    device: str = option("cpu", help="Torch device for a run, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads; where not given, torch chooses for a run, and an artifact gets one.",
        minimum=1,
    )
    translations: Path | None = option(None, help="File to write the translations to.")
    json: bool = option(False, help="Print one JSON object instead of text.")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve evaluate``.

    Raises:
        SeqserveError: What went wrong; the command prints it.
    """
    options = parse(
        EvaluateOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve evaluate",
        description="Translates held-out sources and prints BLEU and chrF with signatures.",
        epilog=_EPILOG,
    )
    let_threads_sleep()
    from seqserve_model.evaluate import run

    run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
