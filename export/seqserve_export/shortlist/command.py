"""``seqserve shortlist``: the command line of :mod:`seqserve_export.shortlist.learn`."""

from seqserve_export.command import ArtifactCommand
from seqserve_export.options import ShortlistOptions


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
