"""``seqserve upgrade``: the command line of :mod:`seqserve_export.conversion`."""

from dataclasses import dataclass
from pathlib import Path

from seqserve.options import option
from seqserve_export.command import ArtifactCommand


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeOptions:
    """Options of ``seqserve upgrade``."""

    folder: Path = option(
        help="Folder of a version, of a model with all its versions, or of all models.",
        positional=True,
    )
    output: Path | None = option(
        None, help="Folder to write the version to; if not given, it is converted where it is."
    )


def _upgrade(options: UpgradeOptions) -> str:
    from seqserve_export.conversion import upgrade

    return "\n".join(upgrade(options.folder, options.output))


main = ArtifactCommand(
    name="upgrade",
    options=UpgradeOptions,
    run=_upgrade,
    description=(
        "Converts models that an older release wrote, so that this one serves them. Their weights\n"
        "stay as they are and their answers the same; the sentence of the self-test proves it.\n"
        "A version is replaced when it is converted and proved, and left as it is otherwise."
    ),
    epilog="""\
examples:
  seqserve upgrade models
  seqserve upgrade models/en-de/1
  seqserve upgrade old/en-de/1 --output models/en-de/1""",
)
