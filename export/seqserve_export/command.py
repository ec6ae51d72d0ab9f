"""``seqserve export``: the command line of :mod:`seqserve_export.export`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seqserve.options import parse
from seqserve_export.options import ExportOptions
from seqserve_model.waiting import let_threads_sleep

_EPILOG = """\
examples:
  seqserve export runs/en-de --name en-de --description "English to German"
  seqserve export runs/en-de --name en-de --model-version 2 --precision int8
  seqserve export runs/mine --name mine --data held-out.tsv --sentences 1000"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve export``."""
    options = parse(
        ExportOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve export",
        description=(
            "Exports a trained model to ONNX and proves it: torch and the artifact translate the\n"
            "same real sentences, and nothing is written unless they agree token by token."
        ),
        epilog=_EPILOG,
    )
    let_threads_sleep()
    from seqserve_export.export import export

    print(options.ready(export(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
