"""Options of ``seqserve train`` and ``seqserve evaluate``, readable without torch."""

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from seqserve.command.connection import PairCallOptions
from seqserve.options import option


class Weights(Enum):
    """Which weights of a run to take."""

    RESULT = "result"
    """The better of the two below; while the training still runs, the best so far."""
    AVERAGED = "averaged"
    BEST = "best"
    LAST = "last"


WEIGHTS_HELP = (
    "Weights of the run: averaged is the mean of the last checkpoints, best had the best"
    " validation, last is the last checkpoint. result is the choice of the training between the"
    " first two; before its end, it is best or else last."
)
"""Help of the option ``--weights``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOptions:
    """Options of ``seqserve train``."""

    recipe: Path = option(help="TOML file of the recipe.", positional=True)
    out: Path | None = option(
        None, help="Directory of the run; runs/<name of the recipe> if not given."
    )
    resume: bool = option(False, help="Continue from the last checkpoint, if there is one.")
    fresh: bool = option(False, help="Remove an earlier training first.")
    device: str = option("cpu", help="Torch device, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads of torch; torch chooses if not given. One is best for small models.",
        minimum=1,
    )
    max_steps: int | None = option(None, help="Steps to train, instead of the recipe's.", minimum=1)
    time_limit_s: float | None = option(
        None, help="Stop after this time, with a checkpoint; --resume goes on.", minimum=0
    )


class Tokenize(Enum):
    """How BLEU divides a text into words, by the names of sacrebleu."""

    MTEVAL = "13a"
    """As the script mteval-v13a does."""
    NONE = "none"
    """At spaces alone, for text that is divided already."""
    INTERNATIONAL = "intl"
    """Punctuation and symbols of every script apart."""
    CHARACTERS = "char"
    """Each character is a word, for scripts that write no spaces."""
    CHINESE = "zh"
    """Chinese characters apart."""


# No slots: Python cannot join two bases that both have them.
@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search."""

    beam_size: int | None = option(
        None,
        help="Beam size, except for runs. By default an artifact uses greedy search, as runs do,"
        " and a server its model's recommendation.",
        minimum=1,
        maximum=64,
    )
    length_penalty: float | None = option(
        None, help="Length penalty of the beams, except for runs.", minimum=0
    )

    def search(self) -> dict[str, Any]:
        """Returns the options of the search that are set, by name."""
        values = {"beam_size": self.beam_size, "length_penalty": self.length_penalty}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateOptions(PairCallOptions, SearchOptions):
    """Options of ``seqserve evaluate``."""

    path: Path | None = option(
        None,
        help="Directory of a training run, or of an artifact; if not given, the server of --target"
        " translates.",
        positional=True,
    )
    data: Path | None = option(
        None, help="TSV file of source and target; a run's own test set if not given."
    )
    source_column: int = option(0, help="Column of the source in the data.", minimum=0)
    target_column: int = option(1, help="Column of the target in the data.", minimum=0)
    tokenize: Tokenize = option(Tokenize.MTEVAL, help="How BLEU divides a text into words.")
    weights: Weights = option(Weights.RESULT, help=WEIGHTS_HELP)
    limit: int | None = option(None, help="Score only the first pairs.", minimum=1)
    device: str = option("cpu", help="Torch device for a run, such as cpu or cuda.")
    threads: int | None = option(
        None,
        help="Threads; if not given, torch chooses for a run, and an artifact gets one.",
        minimum=1,
    )
    translations: Path | None = option(None, help="File to write the translations to.")
    json: bool = option(False, help="Print one JSON object instead of text.")
