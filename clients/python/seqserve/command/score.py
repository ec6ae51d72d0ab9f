"""``seqserve score``: prints the log-probability of every token of a target."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

from seqserve.command.connection import PairCallOptions
from seqserve.options import option, parse
from seqserve.output import aligned, json_line
from seqserve.results import ScoreResult

_HEADINGS = ("TOKEN", "ID", "LOG-PROBABILITY", "PROBABILITY")
_EPILOG = """\
Logarithms are natural. SUM is the score of the target, MEAN the score divided by the number of
tokens, the end token included. Tokens are subwords; ▁ is the space before one.

examples:
  seqserve score "The coffee tastes good." "Der Kaffee schmeckt gut."
  seqserve score --json "I am learning German." "Ich lerne Deutsch." | jq .score"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreOptions(PairCallOptions):
    """The options of ``seqserve score``."""

    source: str = option(help="The source text.", positional=True)
    target_text: str = option(help="The target text to score.", positional=True)
    json: bool = option(False, help="Print one JSON object, with every field.")


def main(argv: list[str]) -> int:
    """Runs the command and returns its exit status."""
    options = parse(
        ScoreOptions,
        argv,
        prog="seqserve score",
        description="Prints the log-probability of every token of a target.",
        epilog=_EPILOG,
    )
    with options.connect() as client:
        result = client.score(options.source, options.target_text, **options.call())
    print(json_line(asdict(result)) if options.json else "\n".join(_table_of(result)))
    return 0


def _table_of(result: ScoreResult) -> list[str]:
    tokens = zip(result.tokens, result.token_ids, result.token_scores, strict=True)
    rows = [
        _HEADINGS,
        *(
            (token, str(id_), f"{score:.4f}", f"{math.exp(score):.4f}")
            for token, id_, score in tokens
        ),
        ("SUM", "", f"{result.score:.4f}", ""),
        ("MEAN", "", f"{result.normalized_score:.4f}", ""),
    ]
    return aligned(rows, right=(1, 2, 3))
