import pytest

from seqserve_model.numbers import number_pairs, spell


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
    assert all(pair.target == spell(int(pair.source)) for pair in pairs)
    assert pairs == list(number_pairs(500))
