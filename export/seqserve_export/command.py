"""``seqserve export``, and the shape of commands that write an artifact."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from seqserve.options import parse
from seqserve_export.options import ExportOptions
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
    from seqserve_export.export import export

    return options.ready(export(options))


main = ArtifactCommand(
    name="export",
    options=ExportOptions,
    run=_export,
    description=(
        "Exports a trained model to ONNX and proves it: torch and the artifact translate the\n"
        "same real sentences, and nothing is written unless they agree token by token."
    ),
    epilog="""\
examples:
  seqserve export runs/en-de --name en-de --description "English to German"
  seqserve export runs/en-de --name en-de --model-version 2 --precision int8
  seqserve export runs/mine --name mine --data held-out.tsv --sentences 1000
  seqserve export runs/mine --name mine --recommend beam_size=4 --recommend length_penalty=0.6""",
)

if __name__ == "__main__":
    sys.exit(main())
