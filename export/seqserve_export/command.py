"""The commands that write an artifact: ``seqserve export``, ``shortlist`` and ``upgrade``."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from seqserve.options import option, parse
from seqserve_export.options import ExportOptions, ShortlistOptions
from seqserve_model.command import set_passive_wait

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactCommand(Generic[T]):
    """A command that reads its options before torch is loaded, and then writes an artifact.

    So ``--help`` works with the client alone, and OpenMP's wait policy is set in time.
    """

    name: str
    options: type[T]
    description: str
    epilog: str
    run: Callable[[T], str]
    """Writes the artifact, and returns what is printed then. Torch is imported in it."""

    def __call__(self, argv: Sequence[str] | None = None) -> int:
        """Runs the command; returns its exit status."""
        options = parse(
            self.options,
            sys.argv[1:] if argv is None else argv,
            prog=f"seqserve {self.name}",
            description=self.description,
            epilog=self.epilog,
        )
        set_passive_wait()
        print(self.run(options))
        return 0


def _export(options: ExportOptions) -> str:
    from seqserve_export.pipeline import export

    return options.ready(export(options))


main = ArtifactCommand(
    name="export",
    options=ExportOptions,
    run=_export,
    description=(
        "Exports a trained model to ONNX and proves the result: torch and the artifact translate\n"
        "the same real sentences, and nothing is written unless they agree token by token."
    ),
    epilog="""\
examples:
  seqserve export runs/en-de --name en-de --description "English to German"
  seqserve export runs/en-de --name en-de --model-version 2 --precision int8
  seqserve export runs/mine --name mine --data held-out.tsv --sentences 1000
  seqserve export runs/mine --name mine --recommend beam_size=4 --recommend length_penalty=0.6""",
)


def _shortlist(options: ShortlistOptions) -> str:
    from seqserve_export.shortlist_learning import make_shortlist

    return f"{make_shortlist(options)}: ready to serve in place of {options.artifact}"


shortlist = ArtifactCommand(
    name="shortlist",
    options=ShortlistOptions,
    run=_shortlist,
    description=(
        "Learns from parallel text which tokens translate which, and writes a version of a\n"
        "model that chooses only among these. With a large vocabulary a step then takes a\n"
        "fraction of the time. Nothing is written if other translations get worse."
    ),
    epilog="""\
example:
  seqserve shortlist models/en-de/2 --source train.en --target train.de --frequent 50 --best 50""",
)


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
    from seqserve_export.conversion import upgrade as convert

    return "\n".join(convert(options.folder, options.output))


upgrade = ArtifactCommand(
    name="upgrade",
    options=UpgradeOptions,
    run=_upgrade,
    description=(
        "Converts models of an older release, so that this one serves them. Weights and answers\n"
        "stay the same; the sentence of the self-test proves it. A version is replaced only\n"
        "after its conversion is proved."
    ),
    epilog="""\
examples:
  seqserve upgrade models
  seqserve upgrade models/en-de/1
  seqserve upgrade old/en-de/1 --output models/en-de/1""",
)

if __name__ == "__main__":
    sys.exit(main())
