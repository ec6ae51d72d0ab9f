"""``seqserve evaluate``: the command line of :mod:`seqserve_model.evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seqserve.options import parse
from seqserve_model.command import set_passive_wait
from seqserve_model.options import EvaluateOptions

_EPILOG = """\
examples:
  seqserve evaluate runs/en-de
  seqserve evaluate runs/en-de --translations out.txt
  seqserve evaluate models/en-de/2 --data test.tsv --beam-size 5 --length-penalty 0.6
  seqserve evaluate --target localhost:50051 --model en-de --data test.tsv
  seqserve evaluate models/en-de/2 --data test.tokenized.tsv --tokenize none"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve evaluate``."""
    options = parse(
        EvaluateOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve evaluate",
        description="Translates held-out sources and prints BLEU and chrF with signatures.",
        epilog=_EPILOG,
    )
    set_passive_wait()
    from seqserve_model.evaluate import run

    run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
