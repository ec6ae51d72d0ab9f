"""``seqserve shortlist``: the command line of :mod:`seqserve_export.shortlist.learn`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_export.command import ArtifactCommand


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


def _shortlist(options: ShortlistOptions) -> str:
    from seqserve_export.shortlist.learn import make_shortlist

    return f"{make_shortlist(options)}: ready to serve in place of {options.artifact}"


main = ArtifactCommand(
    name="shortlist",
    options=ShortlistOptions,
    run=_shortlist,
    description=(
        "Learns from parallel text which tokens translate which, and writes a version of a\n"
        "model that chooses among them only: a step of a large vocabulary takes a fraction of\n"
        "the time. Nothing is written if translations of other sentences get worse by it."
    ),
    epilog="""\
example:
  seqserve shortlist models/en-de/2 --source train.en --target train.de --frequent 50 --best 50""",
)
