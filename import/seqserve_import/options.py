"""Options of ``seqserve import``, readable without torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_export.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions:
    """Options of ``seqserve import``."""

    folder: Path = option(help="Folder of the checkpoint, as downloaded.", positional=True)
    name: str = option(help="Name of the model, that clients request.")
    model_version: int = option(1, help="Version; the highest one is served.", minimum=1)
    model_repository: Path = option(Path("models"), help="Folder of models to write to.")
    description: str = option("", help="What the model is for, in one line.")
    licence: str = option("", help="Licence of the model, an SPDX identifier.")
    data_licence: str = option("", help="Licence of the data it was trained on.")
    attribution: str = option("", help="Attribution that a licence requires.")
    precision: Precision = option(
        Precision.FP32, help="int8 is about twice as fast; its scales come from the sentences."
    )
    data: Path | None = option(
        None,
        help="Sentences for the proof, one a line, each with its translation after a TAB if it has"
        " one; the model itself writes them if not given.",
    )
    sentences: int = option(200, help="Maximum number of sentences of the proof.", minimum=1)
    threads: int = option(2, help="Threads of the proof.", minimum=1)
