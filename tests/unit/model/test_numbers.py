from collections import Counter

import pytest

from seqserve_model.parallel_text import number_pairs, spell


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "zero"),
        (13, "thirteen"),
        (20, "twenty"),
        (99, "ninety-nine"),
        (100, "one hundred"),
        (427, "four hundred twenty-seven"),
        (1_000, "one thousand"),
        (60_010, "sixty thousand ten"),
        (999_999, "nine hundred ninety-nine thousand nine hundred ninety-nine"),
    ],
)
def test_numbers_are_spelt(number: int, words: str) -> None:
    assert spell(number) == words


def test_pairs_are_different_and_of_all_lengths() -> None:
    pairs = list(number_pairs(500))
    assert len(pairs) == len(set(pairs)) == 500
    assert {len(pair.source) for pair in pairs} == {1, 2, 3, 4, 5, 6}
    assert "0" not in {pair.source for pair in pairs}
    assert all(pair.target == spell(int(pair.source)) for pair in pairs)
    assert pairs == list(number_pairs(500))


def test_many_pairs_have_all_short_numbers() -> None:
    sources = {pair.source for pair in number_pairs(20_000)}
    assert sources >= set(map(str, range(1, 1_000)))
    lengths = Counter(map(len, sources))
    assert [round(lengths[digits], -2) for digits in (4, 5, 6)] == [5_100, 7_200, 6_600]
