"""``seqserve import``: the command line of :mod:`seqserve_import.importing`."""

import sys

from seqserve_export.command import ArtifactCommand
from seqserve_import.options import ImportOptions


def _import(options: ImportOptions) -> str:
    from seqserve_import.collection import import_all

    return import_all(options)


main = ArtifactCommand(
    name="import",
    options=ImportOptions,
    run=_import,
    description=(
        "Turns a checkpoint of Hugging Face or Marian, a folder on this machine, into ONNX\n"
        "files, and proves it: torch and the artifact decode the same sentences, and nothing\n"
        "is written unless they agree token by token. Nothing is downloaded. Of a folder of\n"
        "many checkpoints each is imported; those that are there already are left out."
    ),
    epilog="""\
families: Marian (OPUS-MT), M2M-100, NLLB, T5 (1.1, Flan, mT5, ByT5, MADLAD), BART, mBART, Pegasus;
          of files of their own: Marian, and the models of Firefox

examples:
  seqserve import opus-mt-en-de --name en-de-opus --licence CC-BY-4.0
  seqserve import opus-mt-en-de --name en-de-opus --data held-out.tsv
  seqserve import firefox-models --precision int8 --data sentences --licence MPL-2.0
  seqserve import flan-t5-small --name flan --precision int8 --data questions.txt""",
)

if __name__ == "__main__":
    sys.exit(main())
