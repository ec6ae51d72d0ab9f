"""Options of ``seqserve export``, readable without torch."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from seqserve.errors import OptionError
from seqserve.options import option
from seqserve_model.options import WEIGHTS_HELP, Weights
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.bounds import check_recommended
from seqserve_server.contract.errors import InvalidRequest


class Precision(Enum):
    """Arithmetic of the projections."""

    FP32 = "fp32"
    FP16 = "fp16"
    """Caches too are fp16: for GPUs. A CPU computes it more slowly than fp32."""
    INT8 = "int8"


class Scales(Enum):
    """The origin of the scale of a projection's input."""

    STATIC = "static"
    """From calibration: the fewest operations."""
    ROW = "row"
    """From each row at run time: the most exact."""


class Caches(Enum):
    """Type of the K/V caches."""

    FLOAT = "float"
    """fp32: faster for short rows of a small model."""
    INT8 = "int8"
    """A quarter of the memory: faster if caches outgrow the processor's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactOptions:
    """Options of every command that writes an artifact."""

    name: str = option(help="Name by which clients request the model.")
    model_version: int = option(1, help="Version; the highest one is served.", minimum=1)
    model_repository: Path = option(Path("models"), help="Folder of models to write to.")
    description: str = option("", help="What the model is for, in one line.")
    licence: str = option("", help="Licence of the model, an SPDX identifier.")
    data_licence: str = option("", help="Licence of the data it was trained on.")
    attribution: str = option("", help="Attribution that a licence requires.")
    source_language: str | None = option(
        None,
        help="Code of the language that the model reads, such as en, so that calls may name the"
        " languages instead of the model; if not given, as the checkpoint or recipe declares.",
    )
    target_language: str | None = option(None, help="Code of the language that it writes.")
    precision: Precision = option(
        Precision.FP32, help="int8 is about twice as fast; fp16 is for GPUs."
    )
    caches: Caches = option(
        Caches.FLOAT,
        help="int8: type of the K/V caches. int8 takes a quarter of the memory, and pays off for"
        " wide models with many long rows.",
    )
    recommend: dict[str, str] | None = option(
        None,
        metavar="NAME=VALUE",
        help="Default of a decoding option for requests that do not set it, by its name in the"
        " API, such as beam_size=5, keep_placeholders=true or segmentation=sentences. The value"
        " is JSON, or a text without quotes.",
    )

    def __post_init__(self) -> None:
        """Checks the recommendation before a long work begins."""
        self.recommended()

    def recommended(self, defaults: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """Returns what the manifest recommends: the options named, over what the model comes with.

        Raises:
            OptionError: The option does not exist, or its value is wrong.
        """
        named = {name: _json_or_text(text) for name, text in (self.recommend or {}).items()}
        recommended = {**defaults, **named}
        try:
            check_recommended(recommended)
        except InvalidRequest as error:
            of_model = "the settings of the checkpoint, or " if defaults else ""
            raise OptionError(f"{of_model}--recommend: {error}") from None
        return recommended

    def ready(self, place: Path) -> str:
        """Describes the artifact: place, precision, size, and the command that serves it."""
        megabytes = sum(file.stat().st_size for file in place.iterdir()) / 1e6
        return (
            f"{place} ({self.precision.value}, {megabytes:.1f} MB): ready to serve; try: "
            f"seqserve serve --model-repository {self.model_repository} "
            f"--default-model {self.name}{_rounding(place)}"
        )


def _json_or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _rounding(place: Path) -> str:
    record = Manifest.read(place).quantization
    return f"\n{record.scales} scales: {record.reason}" if record and record.reason else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions(ArtifactOptions):
    """Options of ``seqserve export``."""

    run: Path = option(help="Directory of a training run.", positional=True)
    weights: Weights = option(Weights.RESULT, help=WEIGHTS_HELP)
    precision: Precision = option(
        Precision.FP32,
        help="int8 is about twice as fast, and refused if it costs more than 0.2 BLEU; fp16 is for"
        " GPUs.",
    )
    scales: Scales = option(
        Scales.STATIC,
        help="int8: whether calibration (static) or each row at run time (row) gives the scales"
        " of inputs; row is a little more exact, static is faster.",
    )
    calibration: Path | None = option(
        None, help="int8: TSV of real sentences; the run's validation set if not given."
    )
    calibration_sentences: int = option(
        1_000, help="int8: maximum number of its sentences.", minimum=1
    )
    data: Path | None = option(
        None, help="TSV of real sentences for the proof; the run's test set if not given."
    )
    sentences: int = option(2_000, help="Maximum number of sentences of the proof.", minimum=1)
    threads: int = option(2, help="Threads of the proof.", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortlistOptions:
    """Options of ``seqserve shortlist``."""

    artifact: Path = option(help="Folder of a version of a model.", positional=True)
    source: Path = option(help="Text in the language of the sources, one sentence a line.")
    target: Path = option(help="Its translation, line by line.")
    frequent: int = option(50, help="Most frequent target tokens, for every source.", minimum=1)
    best: int = option(50, help="Most probable translations of each source token.", minimum=1)
    iterations: int = option(5, help="Rounds of learning.", minimum=1)
    pairs: int = option(200_000, help="Maximum number of pairs to learn from.", minimum=1)
    data: Path | None = option(
        None, help="TSV of real sentences for the proof; the last pairs of the text if not given."
    )
    sentences: int = option(1_000, help="Maximum number of sentences of the proof.", minimum=1)
    model_version: int = option(0, help="Version to write; 0 for the next one.", minimum=0)
    threads: int = option(2, help="Threads of the proof.", minimum=1)
