"""Options of ``seqserve import``, readable without torch."""

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_export.options import ArtifactOptions, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOptions(ArtifactOptions):
    """Options of ``seqserve import``."""

    folder: Path = option(
        help="Folder of the checkpoint, as downloaded, an .argosmodel, or a folder of many.",
        positional=True,
    )
    adapter: Path | None = option(
        None, help="Folder of a LoRA of PEFT for the checkpoint, which is merged into its weights."
    )
    name: str = option(
        "",
        help="Name of the model, that clients request; of many, what comes before each. By default"
        " the pair of its languages, such as en-de.",
    )
    precision: Precision = option(
        Precision.FP32,
        help="int8 is about twice as fast; its scales come from the sentences. fp16 is for GPUs.",
    )
    data: Path | None = option(
        None,
        help="Sentences for the proof, one a line, each with its translation after a TAB if it has"
        " one; of many models a folder, with a file en.txt for each source language. The model"
        " itself writes them if not given.",
    )
    max_source_length: int | None = option(
        None,
        help="Longest source in tokens, for T5 and ByT5, which have no limit of their own; that of"
        " config.json, or 512, if not given.",
        minimum=1,
        maximum=16_384,
    )
    sentences: int = option(200, help="Maximum number of sentences of the proof.", minimum=1)
    threads: int = option(2, help="Threads of the proof.", minimum=1)
