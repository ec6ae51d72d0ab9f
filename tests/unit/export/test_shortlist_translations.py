"""IBM model 1: which tokens translate each other in parallel text."""

import itertools
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_export import shortlist_learning
from seqserve_export.shortlist_learning import TokenPair, learn_translations

SIZE = 12


def test_words_that_always_come_together_translate_each_other() -> None:
    # The example of textbooks: das Haus, das Buch, ein Buch.
    das, haus, buch, ein = range(4)
    the, house, book, a = range(4, 8)
    pairs = [([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])]
    learned = learn_translations(pairs, SIZE, iterations=10, best=1)
    assert learned == {das: [the], haus: [house], buch: [book], ein: [a]}


def test_only_the_most_probable_translations_are_kept_best_first() -> None:
    pairs: list[TokenPair] = [([0], [target]) for target in (5, 6, 6, 7, 7, 7)]
    assert learn_translations(pairs, SIZE, iterations=3, best=9) == {0: [7, 6, 5]}
    assert learn_translations(pairs, SIZE, iterations=3, best=2) == {0: [7, 6]}


def test_empty_sentences_count_for_nothing() -> None:
    pairs: list[TokenPair] = [([], [1]), ([1], []), ([2], [3])]
    assert learn_translations(pairs, SIZE, iterations=2, best=5) == {2: [3]}


def by_the_book(pairs: list[TokenPair], iterations: int) -> dict[tuple[int, int], float]:
    """Gives the probabilities of target tokens by source token, -1 for none, sum by sum."""
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in pairs:
            for word in target:
                total = sum(table[one, word] for one in [*source, -1])
                for one in [*source, -1]:
                    counts[one, word] += table[one, word] / total
        totals: dict[int, float] = defaultdict(float)
        for (one, _), count in counts.items():
            totals[one] += count
        table = defaultdict(float, {key: count / totals[key[0]] for key, count in counts.items()})
    return table


words = st.lists(st.integers(0, 5), min_size=1, max_size=5)


@given(
    pairs=st.lists(st.tuples(words, words), min_size=1, max_size=12),
    iterations=st.integers(1, 4),
    chunk=st.integers(1, 5),
)
def test_probabilities_of_the_book(pairs: list[TokenPair], iterations: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shortlist_learning, "_CHUNK_PAIRS", chunk)
        learned = learn_translations(pairs, SIZE, iterations=iterations, best=SIZE)
    book = by_the_book(pairs, iterations)
    likely = {key for key, probability in book.items() if key[0] >= 0 and probability > 1.1e-4}
    assert likely <= {(source, target) for source, listed in learned.items() for target in listed}
    for source, listed in learned.items():
        probabilities = [book[source, target] for target in listed]
        for first, second in itertools.pairwise(probabilities):
            assert first >= second or np.isclose(first, second)
