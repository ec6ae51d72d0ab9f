"""``seqserve train``: the command line of :mod:`seqserve_model.train`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option, parse
from seqserve_model.waiting import let_threads_sleep

_EPILOG = """\
Ctrl-C ends after the step in flight; --resume goes on from there.

examples:
  seqserve train model/configs/numbers.toml --threads 1
  seqserve train model/configs/en-de.toml --threads 2
  seqserve train model/configs/en-de.toml --threads 2 --resume"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Options of ``seqserve train``."""

    recipe: Path = option(help="TOML file of the recipe.", positional=True)
    out: Path | None = option(
        None, help="Directory of the run; runs/<name of the recipe> where not given."
    )
    resume: bool = option(False, help="Go on from the last checkpoint, if there is one.")
    fresh: bool = option(False, help="Remove what an earlier training left there.")
    device: str = option("cpu", help="Torch device, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads of torch; its own choice where not given. Small models want one.",
        minimum=1,
    )
    max_steps: int | None = option(
        None, help="Steps to train in the place of the recipe's.", minimum=1
    )
    time_limit_s: float | None = option(
        None, help="Stop cleanly after so long; --resume goes on.", minimum=0
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve train``.

    Raises:
        SeqserveError: What went wrong; the command prints it.
    """
    argv = sys.argv[1:] if argv is None else argv
    options = parse(
        TrainOptions,
        argv,
        prog="seqserve train",
        description="Trains a model from a recipe; see model/configs for examples.",
        epilog=_EPILOG,
    )
    let_threads_sleep()
    from seqserve_model.train import train

    train(options, command=shlex.join(["seqserve", "train", *argv]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
