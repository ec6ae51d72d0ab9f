"""Scores a model on the development set: ``python -m recipes.german runs/en-de``.

``--source-language de`` reads the set backwards, for a model from German to English.

Prints, for each category, chrF and how much of what a translation must have is in it, and
then whether a sentence that is typed otherwise is still translated by the same words.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sacrebleu.metrics import CHRF

from seqserve_model.data import sentence_key
from seqserve_model.evaluate import Translator, open_translator
from seqserve_model.options import EvaluateOptions

DEVELOPMENT = Path(__file__).with_name("development.tsv")
_MARKS = str.maketrans(",.", ".,")
RETYPED_CATEGORIES = ("greetings", "everyday")
RETYPED: dict[str, Callable[[str], str]] = {
    "nothing": lambda text: _without_end(text),
    ".": lambda text: _without_end(text) + ".",
    "!": lambda text: _without_end(text) + "!",
    "?": lambda text: _without_end(text) + "?",
    "lower case": str.lower,
}


@dataclass(frozen=True)
class Line:
    """A line of the development set: source, reference, category, what must be copied."""

    source: str
    reference: str
    category: str
    copied: Sequence[Sequence[str]] = ()
    """Spans that a translation must have, in one of several ways to write it."""

    @classmethod
    def of(cls, line: str) -> Line:
        """Reads a line: columns by TAB, spans by `` | ``, ways to write one by ``~``."""
        source, reference, category, *copied = line.split("\t")
        spans = [span.split("~") for column in copied for span in column.split(" | ")]
        return cls(source, reference, category, spans)

    def backwards(self) -> Line:
        """Returns the line from German to English, with the spans that English writes alike.

        English may have another decimal mark; months and hours of the day are left out.
        """
        spans = [
            [way for each in ways for way in (each, each.translate(_MARKS))] for ways in self.copied
        ]
        known = ([way for way in ways if is_copied([way], self.source)] for ways in spans)
        return Line(self.reference, self.source, self.category, list(filter(None, known)))


def development(source_language: str = "en") -> list[Line]:
    """Reads the development set, backwards for a model from German."""
    lines = [Line.of(line) for line in DEVELOPMENT.read_text(encoding="utf-8").splitlines()]
    return [line.backwards() for line in lines] if source_language == "de" else lines


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.german", description=__doc__)
    parser.add_argument(
        "path", nargs="?", type=Path, help="training run or artifact; if not given, a server"
    )
    parser.add_argument("--target", default="localhost:50051", help="the server")
    parser.add_argument("--source-language", choices=("en", "de"), default="en")
    parser.add_argument("--beam-size", type=int, help="for an artifact; greedy search by default")
    parser.add_argument("--translations", action="store_true", help="print what was translated")
    arguments = parser.parse_args()
    lines = development(arguments.source_language)
    options = EvaluateOptions(
        path=arguments.path, target=arguments.target, beam_size=arguments.beam_size, threads=1
    )
    with open_translator(options) as translate:
        translations = translate([line.source for line in lines])
        if arguments.translations:
            for line, translation in zip(lines, translations, strict=True):
                print(f"{line.category}\t{line.source}\t{translation}")
        print_scores(lines, translations)
        print_retyped(lines, translations, translate)


def print_scores(lines: Sequence[Line], translations: Sequence[str]) -> None:
    """Prints chrF and the share of copied spans, for each category and for all lines."""
    print(f"{'category':<16}{'lines':>6}{'chrF':>8}{'copied':>9}")
    categories = [*dict.fromkeys(line.category for line in lines), "all"]
    for category in categories:
        chosen = [
            (line, translation)
            for line, translation in zip(lines, translations, strict=True)
            if category in (line.category, "all")
        ]
        chrf = CHRF().corpus_score(
            [translation for _, translation in chosen], [[line.reference for line, _ in chosen]]
        )
        spans = [
            is_copied(ways, translation) for line, translation in chosen for ways in line.copied
        ]
        copied = f"{100 * sum(spans) / len(spans):.1f} %" if spans else ""
        print(f"{category:<16}{len(chosen):>6}{chrf.score:>8.2f}{copied:>9}")


def print_retyped(
    lines: Sequence[Line], translations: Sequence[str], translate: Translator
) -> None:
    """Prints how many sentences have the same words if they are typed in other ways."""
    chosen = [
        (line.source, translation)
        for line, translation in zip(lines, translations, strict=True)
        if line.category in RETYPED_CATEGORIES
    ]
    print(f"\n{'typed with':<16}{'lines':>6}{'same words':>14}")
    for name, retype in RETYPED.items():
        retyped = translate([retype(source) for source, _ in chosen])
        same = [
            sentence_key(translation) == sentence_key(other)
            for (_, translation), other in zip(chosen, retyped, strict=True)
        ]
        print(f"{name:<16}{len(same):>6}{100 * sum(same) / len(same):>12.1f} %")


def is_copied(ways: Sequence[str], text: str) -> bool:
    """Returns whether a text has a span in some way, alone or as a German genitive."""
    return any(re.search(rf"(?<!\w){re.escape(way)}(s?(?!\w)|$)", text) for way in ways)


def _without_end(text: str) -> str:
    return re.sub(r"[.!?]+$", "", text)


if __name__ == "__main__":
    main()
