"""``seqserve import``: the command line of :mod:`seqserve_import.importing`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from seqserve.options import parse
from seqserve_import.options import ImportOptions
from seqserve_model.waiting import let_threads_sleep

_EPILOG = """\
families: Marian (OPUS-MT), M2M-100, NLLB, T5 (1.1, Flan, mT5, ByT5, MADLAD), BART, mBART, Pegasus;
          of files of their own: Marian, and the models of Firefox

examples:
  seqserve import opus-mt-en-de --name en-de-opus --licence CC-BY-4.0
  seqserve import opus-mt-en-de --name en-de-opus --data held-out.tsv
  seqserve import flan-t5-small --name flan --precision int8 --data questions.txt"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs ``seqserve import``."""
    options = parse(
        ImportOptions,
        sys.argv[1:] if argv is None else argv,
        prog="seqserve import",
        description=(
            "Turns a checkpoint of Hugging Face or Marian, a folder on this machine, into ONNX\n"
            "files, and proves it: torch and the artifact decode the same sentences, and nothing\n"
            "is written unless they agree token by token. Nothing is downloaded."
        ),
        epilog=_EPILOG,
    )
    let_threads_sleep()
    from seqserve_import.importing import import_checkpoint

    print(options.ready(import_checkpoint(options)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
