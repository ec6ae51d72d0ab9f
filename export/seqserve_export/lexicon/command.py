"""``seqserve shortlist``: the command line of :mod:`seqserve_export.lexicon.making`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seqserve.options import parse
from seqserve_export.lexicon.options import ShortlistOptions
from seqserve_model.waiting import let_threads_sleep

_EPILOG = """\
example:
  seqserve shortlist models/en-de/2 --source train.en --target train.de --frequent 50 --best 50"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve shortlist``."""
    options = parse(
        ShortlistOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve shortlist",
        description=(
            "Learns from parallel text which tokens translate which, and writes a version of a\n"
            "model that chooses among them only: a step of a large vocabulary takes a fraction of\n"
            "the time. Nothing is written if translations of other sentences get worse by it."
        ),
        epilog=_EPILOG,
    )
    let_threads_sleep()
    from seqserve_export.lexicon.making import make_shortlist

    folder = make_shortlist(options)
    print(f"{folder}: ready to serve in place of {options.artifact}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
