"""Sentences end where a text marks it, whatever sentencex knows of abbreviations."""

from collections import Counter, defaultdict
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.text import sentence_ends
from seqserve_server.text.sentence_ends import segment

SAMPLES = [
    tuple(line.split("\t"))
    for line in Path(__file__).with_name("sentences.tsv").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
TABLE = [
    line.split("\t")
    for line in Path(sentence_ends.__file__)
    .with_name("abbreviations.tsv")
    .read_text("utf-8")
    .splitlines()
    if not line.startswith("#")
]
WORDS = [*"IVX57.-¿«“(", " ", "  ", "\u00a0", "We", "left", "Ms.", "No.", "z.", "B.", "usw.", "r."]


@pytest.mark.parametrize(("language", "marked"), SAMPLES)
def test_sentences(language: str, marked: str) -> None:
    parts = segment(language, marked.replace("|", " "))
    assert "|".join(part.strip() for part in parts) == marked


@pytest.mark.parametrize("code", ["eng", "en-GB", "eng_Latn"])
def test_each_form_of_a_code_has_the_table(code: str) -> None:
    assert segment(code, "He met Ms. Brown.") == ["He met Ms. Brown."]


def test_other_languages_have_the_sentences_of_sentencex() -> None:
    text = "Han såg Ms. Brown. Hon gick."
    assert segment("sv", text) == sentencex.segment("sv", text)


@pytest.mark.parametrize("language", sorted({language for language, _ in SAMPLES}))
def test_texts_that_follow_each_other_are_divided_at_least_as_often(language: str) -> None:
    texts = [text.replace("|", " ") for code, text in SAMPLES if code == language]
    found: Counter[str] = Counter()
    for text, following in pairwise(texts):
        for divide in (segment, sentencex.segment):
            ends = accumulate(map(len, divide(language, f"{text} {following}")))
            found[divide.__module__] += len(text) + 1 in ends
    assert found[segment.__module__] >= max(found.values())


@given(st.lists(st.sampled_from(WORDS)).map("".join), st.sampled_from(["en", "de", "es", "pl"]))
def test_no_character_is_lost(text: str, language: str) -> None:
    assert "".join(segment(language, text)) == text


def test_an_abbreviation_has_one_kind() -> None:
    kinds: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    around = {"opener", "ordinal", "counted", "adverb"}
    for language, kind, names in TABLE:
        for name in names.split() if kind not in around else ():
            kinds[language, name].add(kind)
    assert [name for name, found in kinds.items() if len(found) > 1] == []
