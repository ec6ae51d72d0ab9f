"""Measures what an artifact answers, as it is served, to other letters and forms of address.

    python -m recipes.forms capitals models/en-de/5
    python -m recipes.forms formality models/en-de/5

``capitals`` prints chrF, without case, of the answers to the development set in CAPITALS and in
Title Case beside the answers to the set as it is. ``formality`` translates ``german/readers.txt``:
sentences with "you", the last 20 with others too. It prints how many answers have words of the
wanted form and none of the other one.
"""

import argparse
import re
from collections import Counter
from pathlib import Path

from recipes.german.__main__ import DEVELOPMENT, Line
from sacrebleu.metrics import CHRF

from seqserve_server import Offline

_READERS = DEVELOPMENT.with_name("readers.txt")
_SMALL = re.compile("an?|and|as|at|but|by|for|from|in|of|on|or|the|to|with")
_OTHERS = re.compile(r"\b(?:she|her|they|them|their)\b", re.IGNORECASE)
# At the beginning it may mean others.
_POLITE = re.compile(r"(?<!^)\b(?:Sie|Ihnen|Ihre?[nmrs]?)\b")
_POLITE_FIRST = re.compile(r"(?:Sie|Ihre?[nmrs]?)\b")
_FAMILIAR = re.compile(
    r"\b(?:[Dd](?:u|ich|ir|eine?[nmrs]?)|[Ee](?:uch|uer|ure[nmrs]?)|ihr)\b|^Ihr [a-zäöü]+t\b"
)


def main() -> None:
    """Runs the command."""
    parser = argparse.ArgumentParser(prog="python -m recipes.forms", description=__doc__)
    parser.add_argument("what", choices=("capitals", "formality"))
    parser.add_argument("model", type=Path)
    parser.add_argument("--shown", action="store_true", help="print the answers")
    given = parser.parse_args()
    with Offline(given.model) as offline:
        measure = _measure_capitals if given.what == "capitals" else _measure_formality
        measure(offline, given.shown)


def _measure_capitals(offline: Offline, shown: bool) -> None:
    lines = [Line.of(line) for line in DEVELOPMENT.read_text(encoding="utf-8").splitlines()]
    sources = [line.source for line in lines if line.category != "capitals"]
    plain = [result.text for result in offline.generate(sources)]
    chrf = CHRF()
    for name, write in (("CAPITALS", str.upper), ("Title Case", _titled)):
        answers = [result.text for result in offline.generate(map(write, sources))]
        scores = [
            chrf.sentence_score(answer.casefold(), [reference.casefold()]).score / 100
            for answer, reference in zip(answers, plain, strict=True)
        ]
        print(f"{name}: {sum(scores) / len(scores):.3f} on {len(scores)} lines")
        if shown:
            print(*map(" | ".join, zip(sources, plain, answers, strict=True)), sep="\n")


def _titled(text: str) -> str:
    first, *words = text.split(" ")
    capital = (word if _SMALL.fullmatch(word) else word[:1].upper() + word[1:] for word in words)
    return " ".join([first[:1].upper() + first[1:], *capital])


def _measure_formality(offline: Offline, shown: bool) -> None:
    sources = _READERS.read_text(encoding="utf-8").splitlines()
    for wish in (None, "less", "more"):
        answers = [result.text for result in offline.generate(sources, formality=wish)]
        forms = [form_of(*pair) for pair in zip(sources, answers, strict=True)]
        print(wish, *(Counter(part) for part in (forms[:60], forms[60:])))
        if shown:
            print(*map(" | ".join, zip(forms, sources, answers, strict=True)), sep="\n")


def form_of(source: str, answer: str) -> str:
    """Returns the form in which a German answer addresses its reader: more, less, both or none."""
    is_first = _POLITE_FIRST.match(answer) and not _OTHERS.search(source)
    is_familiar = bool(_FAMILIAR.search(answer))
    is_polite = bool(_POLITE.search(answer) or (is_first and not is_familiar))
    return {(0, 0): "none", (1, 0): "more", (0, 1): "less", (1, 1): "both"}[is_polite, is_familiar]


if __name__ == "__main__":
    main()
