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
        None,
        help="Folder of a LoRA adapter of PEFT, which is merged into the checkpoint's weights.",
    )
    name: str = option(
        "",
        help="Name by which clients request the model; for many checkpoints, a prefix of their"
        " names. By default the language pair, such as en-de.",
    )
    precision: Precision = option(
        Precision.FP32,
        help="int8 is about twice as fast; its scales come from the sentences. fp16 is for GPUs.",
    )
    data: Path | None = option(
        None,
        help="Sentences for the proof, one a line, optionally with a translation after a TAB; for"
        " many checkpoints a folder with a file such as en.txt for each source language. If not"
        " given, the model itself writes them.",
    )
    max_source_length: int | None = option(
        None,
        help="Longest source in tokens, for T5 and ByT5, whose weights set no limit; if not"
        " given, the limit in config.json, or 512.",
        minimum=1,
        maximum=16_384,
    )
    sentences: int = option(200, help="Maximum number of sentences of the proof.", minimum=1)
    threads: int = option(2, help="Threads of the proof.", minimum=1)
