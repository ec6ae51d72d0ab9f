"""Capitals and Title Case, as the shipped model reads them with the options that it recommends."""

import re

from recipes.german.__main__ import DEVELOPMENT, Line
from sacrebleu.metrics import CHRF

from seqserve import Client

LEAST = 0.9
"""chrF beside the answer to the plain sentence, without case."""
SMALL = re.compile("an?|and|as|at|but|by|for|from|in|of|on|or|the|to|with")


def titled(text: str) -> str:
    first, *words = text.split(" ")
    capital = (word if SMALL.fullmatch(word) else word[:1].upper() + word[1:] for word in words)
    return " ".join([first[:1].upper() + first[1:], *capital])


def test_letters_change_answers_little(translator: Client) -> None:
    lines = [Line.of(line) for line in DEVELOPMENT.read_text(encoding="utf-8").splitlines()]
    sources = [line.source for line in lines if line.category != "capitals"]
    plain, *others = (
        [
            result.text.casefold()
            for result in translator.generate_batch(
                [write(source) for source in sources], target_language="de"
            )
        ]
        for write in (str, str.upper, titled)
    )
    chrf = CHRF()
    for answers in others:
        scores = [
            chrf.sentence_score(answer, [reference]).score / 100
            for answer, reference in zip(answers, plain, strict=True)
        ]
        print(f"chrF {sum(scores) / len(scores):.3f} on {len(scores)} lines")
        assert sum(scores) / len(scores) >= LEAST
