"""Formality of the shipped model: over gRPC, in streams and texts, over HTTP as DeepL has it."""

import re
from collections import Counter
from pathlib import Path

import pytest

from seqserve import Client

READERS = Path(__file__).with_name("readers.txt")
"""Sentences with "you"; the last 20 have others too."""
OTHERS = re.compile(r"\b(?:she|her|they|them|their)\b", re.IGNORECASE)
# At the beginning it may mean others.
POLITE = re.compile(r"(?<!^)\b(?:Sie|Ihnen|Ihre?[nmrs]?)\b")
POLITE_FIRST = re.compile(r"(?:Sie|Ihre?[nmrs]?)\b")
FAMILIAR = re.compile(
    r"\b(?:[Dd](?:u|ich|ir|eine?[nmrs]?)|[Ee](?:uch|uer|ure[nmrs]?)|ihr)\b|^Ihr [a-zäöü]+t\b"
)


def form_of(source: str, answer: str) -> str:
    is_familiar = bool(FAMILIAR.search(answer))
    is_first = POLITE_FIRST.match(answer) and not OTHERS.search(source) and not is_familiar
    is_polite = bool(POLITE.search(answer) or is_first)
    return {(0, 0): "none", (1, 0): "more", (0, 1): "less", (1, 1): "both"}[is_polite, is_familiar]


@pytest.mark.parametrize("wish", ["less", "more"])
def test_most_answers_have_the_wanted_form(translator: Client, wish: str) -> None:
    sources = READERS.read_text(encoding="utf-8").splitlines()
    results = translator.generate_batch(sources, target_language="de", formality=wish)
    found = [form_of(source, result.text) for source, result in zip(sources, results, strict=True)]
    print(wish, Counter(found[:60]), Counter(found[60:]))
    assert found[:60].count(wish) >= 0.9 * 60
    assert {*found[:60]} <= {wish, "none"}
