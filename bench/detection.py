"""Compares detectors of languages on short sentences: accuracy, time, memory and size.

    pip install lingua-language-detector py3langid
    python -m bench.detection

Each detector runs in a process of its own on ``bench/languages.tsv``, ten sentences in each of
twenty languages, and is told which languages there are: all of them, or those of a few models. It
prints the table of ``docs/models.md``.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import files
from pathlib import Path
from typing import NamedTuple, TypeAlias

_SENTENCES = Path(__file__).parent / "languages.tsv"
_DISTRIBUTIONS = {
    "lingua": "lingua-language-detector",
    "lingua, low accuracy": "lingua-language-detector",
    "py3langid": "py3langid",
}
_SETS = {"20": "", "6 Romance and Germanic": "de en es fr it pt", "3": "de en ko"}
_REPEATS = 5
_LONG = 1000

Detect: TypeAlias = Callable[[str], str]
"""Returns the code of the language of a text."""


class Figures(NamedTuple):
    """What was measured of one detector and one set of languages."""

    right: int
    sentences: int
    load_ms: float
    sentence_us: float
    long_us: float
    memory_mb: float


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", nargs=2, metavar=("DETECTOR", "SET"), help=argparse.SUPPRESS)
    chosen = parser.parse_args().measure
    if chosen:
        print(json.dumps(_measured(*chosen)))
        return
    print(
        "| detector | languages | right | load | sentence | 1,000 characters | memory | on disk |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, distribution in _DISTRIBUTIONS.items():
        for languages in _SETS:
            command = [sys.executable, "-m", "bench.detection", "--measure", name, languages]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            print(_row(name, languages, Figures(*json.loads(output)), _megabytes(distribution)))


def _row(name: str, languages: str, figures: Figures, megabytes: float) -> str:
    cells = (
        name,
        languages,
        f"{figures.right} of {figures.sentences}",
        f"{figures.load_ms:,.0f} ms",
        f"{figures.sentence_us:,.0f} µs",
        f"{figures.long_us:,.0f} µs",
        f"{figures.memory_mb:,.0f} MB",
        f"{megabytes:,.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


def _measured(name: str, languages: str) -> Figures:
    rows = [line.split("\t") for line in _SENTENCES.read_text(encoding="utf-8").splitlines()]
    codes = _SETS[languages].split() or sorted({code for code, _ in rows})
    sentences = [(code, text) for code, text in rows if code in codes]
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began_s = time.perf_counter()
    detect = _detector(name, codes)
    # What is loaded at first use counts as loading.
    answers = [detect(text) for _, text in sentences]
    load_s = time.perf_counter() - began_s
    long = " ".join(text for _, text in sentences)[:_LONG]
    return Figures(
        right=sum(answer == code for answer, (code, _) in zip(answers, sentences, strict=True)),
        sentences=len(sentences),
        load_ms=1e3 * load_s,
        sentence_us=1e6 * _seconds(detect, [text for _, text in sentences]),
        long_us=1e6 * _seconds(detect, [long]),
        memory_mb=(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1e3,
    )


def _seconds(detect: Detect, texts: Sequence[str]) -> float:
    """Returns the time for a text, of the fastest of some rounds."""
    rounds = []
    for _ in range(_REPEATS):
        began_s = time.perf_counter()
        for text in texts:
            detect(text)
        rounds.append((time.perf_counter() - began_s) / len(texts))
    return min(rounds)


def _detector(name: str, codes: Sequence[str]) -> Detect:
    if name == "py3langid":
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        identifier.set_languages(list(codes))
        return lambda text: str(identifier.classify(text)[0])
    from lingua import IsoCode639_1, LanguageDetectorBuilder

    builder = LanguageDetectorBuilder.from_iso_codes_639_1(
        *(getattr(IsoCode639_1, code.upper()) for code in codes)
    )
    if name != "lingua":
        builder = builder.with_low_accuracy_mode()
    detector = builder.build()

    def detect(text: str) -> str:
        [best, *_] = detector.compute_language_confidence_values(text)
        return str(best.language.iso_code_639_1.name.lower())

    return detect


def _megabytes(distribution: str) -> float:
    places = [Path(str(file.locate())) for file in files(distribution) or ()]
    return sum(place.stat().st_size for place in places if place.is_file()) / 1e6


if __name__ == "__main__":
    main()
