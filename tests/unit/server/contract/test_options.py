from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.contract.options import matched_prefix, missing_terms

words_of_two = st.lists(st.integers(1, 2), max_size=8)
term_of_two = st.lists(st.integers(1, 2), min_size=1, max_size=4).map(tuple)


def test_terms_are_met_wherever_they_are() -> None:
    terms = ((1, 2), (3,), (2, 1), (4, 5, 6))
    assert missing_terms(terms, [1, 2, 3]) == [2, 3]
    assert missing_terms(terms, [4, 5, 6, 3, 1, 2, 1]) == []
    assert missing_terms(terms, []) == [0, 1, 2, 3]
    assert missing_terms((), [1]) == []


def test_tokens_of_a_term_are_adjacent() -> None:
    assert missing_terms(((1, 2),), [1, 3, 2]) == [0]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ([], 0),
        ([1], 1),
        ([9, 1], 1),
        ([1, 2], 2),
        ([1, 2, 1], 3),
        ([3, 1, 2, 1], 3),
        ([1, 2, 2], 0),
        ([1, 2, 1, 2], 2),
        # Met, and by its end not begun again.
        ([1, 2, 1, 3], 0),
        ([2], 0),
    ],
)
def test_term_is_begun_by_the_last_tokens(words: list[int], count: int) -> None:
    assert matched_prefix(words, (1, 2, 1, 3)) == count


def test_term_of_one_token_is_never_begun() -> None:
    assert matched_prefix([1], (1,)) == 0


@given(words=words_of_two, term=term_of_two)
def test_terms_are_sequences(words: list[int], term: tuple[int, ...]) -> None:
    """Compares with substrings: each token is a letter."""
    text, part = "".join(map(str, words)), "".join(map(str, term))
    assert missing_terms((term,), words) == ([] if part in text else [0])
    lengths = [count for count in range(len(part)) if text.endswith(part[:count])]
    assert matched_prefix(words, term) == max(lengths)
