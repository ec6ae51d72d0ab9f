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
        "Turns a checkpoint on this machine into ONNX files: a folder of Hugging Face, Marian or\n"
        "CTranslate2, or a package of Argos. It proves the result: torch and the artifact decode\n"
        "the same sentences, and nothing is written unless they agree token by token. Nothing is\n"
        "downloaded. If FOLDER has many checkpoints, all that do not exist yet are imported."
    ),
    epilog="""\
families: Marian (OPUS-MT), M2M-100, SMaLL-100, NLLB, T5 (1.1, Flan, mT5, umT5, ByT5, MADLAD),
          BART, mBART, Pegasus;
          in their own file formats: Marian, Firefox, CTranslate2 (with OpenNMT-py)

examples:
  seqserve import opus-mt-en-de --name en-de-opus --licence CC-BY-4.0
  seqserve import opus-mt-en-de --name en-de-opus --data held-out.tsv
  seqserve import firefox-models --precision int8 --data sentences --licence MPL-2.0
  seqserve import translate-en_de-1_0.argosmodel --precision int8
  seqserve import nllb-200-distilled-600M-ct2-int8 --name nllb
  seqserve import flan-t5-small --name flan --precision int8 --data questions.txt
  seqserve import flan-t5-small --name formal --adapter flan-t5-small-formal""",
)

if __name__ == "__main__":
    sys.exit(main())
