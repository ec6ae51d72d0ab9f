"""``seqserve train``: the command line of :mod:`seqserve_model.train`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from seqserve.options import parse
from seqserve_model.command import set_passive_wait
from seqserve_model.options import TrainOptions

_EPILOG = """\
Ctrl-C ends after the step in flight; --resume goes on from there.

examples:
  seqserve train model/configs/numbers.toml --threads 1
  seqserve train model/configs/en-de.toml --threads 2
  seqserve train model/configs/en-de.toml --threads 2 --resume"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve train``."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse(
        TrainOptions,
        argv,
        prog="seqserve train",
        description="Trains a model from a recipe; see model/configs for examples.",
        epilog=_EPILOG,
    )
    set_passive_wait()
    from seqserve_model.train import train

    train(options, command=shlex.join(["seqserve", "train", *argv]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
