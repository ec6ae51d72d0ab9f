from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import EOS, WORDS

from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.decoding.beam_step import rank
from seqserve_server.engine.decoding.distribution import Distribution
from seqserve_server.engine.decoding.lexical_constraints import LexicalConstraints
from seqserve_server.engine.decoding.processors import normalize

A, B, C, D, E, F, G = 1, 2, 3, 4, 5, 6, 7

# Best first: A B EOS C D E F G.
FALLING = {A: 0.3, B: 0.25, EOS: 0.15, C: 0.1, D: 0.08, E: 0.06, F: 0.04, G: 0.02}


def after(shares: dict[int, float], never: tuple[int, ...] = ()) -> Distribution:
    scores = np.array([math.log(shares[word]) for word in range(WORDS)], np.float32)
    scores[list(never)] += MASKED_LOGIT
    return Distribution(scores, [], [normalize])


def continued(
    terms: tuple[tuple[int, ...], ...],
    *said: list[int],
    scores: Any = None,
    shares: dict[int, float] = FALLING,
    never: tuple[int, ...] = (),
    ends: tuple[int, ...] = (EOS,),
) -> list[tuple[int, int]]:
    """Gives beam and word of each candidate, after beams of equal score unless told."""
    totals = np.zeros(len(said)) if scores is None else np.array(scores)
    found = [after(shares, never) for _ in said]
    beams, words, log_probabilities, sums = LexicalConstraints(terms, ends).candidates(
        totals, found, said
    )
    for beam, word, found_one, total in zip(
        beams[0], words[0], log_probabilities[0], sums[0], strict=True
    ):
        assert found_one == pytest.approx(found[beam].log_probabilities[word])
        assert total == pytest.approx(totals[beam] + found_one)
    return list(zip(beams[0].tolist(), words[0].tolist(), strict=True))


ALONE = [0.0, -np.inf]
"""Scores of beams that are all alike, as at the beginning."""


def test_there_is_a_bank_for_each_number_of_words_that_may_have_been_said() -> None:
    assert LexicalConstraints(((A,),), [EOS]).num_banks == 2
    assert LexicalConstraints(((A, B, C), (D, E)), [EOS]).num_banks == 6


def test_word_of_a_term_is_a_candidate_however_improbable_it_is() -> None:
    found = continued(((G, A),), [], [], scores=ALONE)
    # One for each bank in turn, that which has said most first; those that go on best first.
    assert found == [(0, A), (0, G), (0, B), (0, C)]


def test_banks_share_the_beam() -> None:
    terms = ((G,), (F,))
    found = continued(terms, [G, A], [A, A], [A, B], scores=[-9.0, 0.0, -0.5])
    # Bank 2 has only the first beam's F, bank 1 its others, and the F and G of the other two.
    assert found == [(1, A), (1, F), (0, F), (2, F), (1, B), (1, G)]


def test_bank_with_more_words_of_the_terms_is_served_first() -> None:
    """With less room than banks, those that are nearer to all their terms stay."""
    terms = ((G, F, E, D),)
    said: list[list[int]] = [[G, F, E], [A, A], [A, G, F]]
    found = continued(terms, *said, scores=[-30.0, 0.0, -20.0])
    assert set(found[:3]) == {(0, D), (2, E), (1, G)}
    assert found[:3] == [(1, G), (2, E), (0, D)]


def test_term_that_is_broken_off_falls_back() -> None:
    """After G only F leads on, and what else is said is as if nothing had been."""
    found = continued(((G, F),), [G], [A], scores=[0.0, -9.0])
    assert found == [(0, F), (1, G), (0, A), (0, B)]


def test_no_hypothesis_ends_without_its_terms() -> None:
    sure = FALLING | {EOS: 100.0}
    for said in ([], [G], [A, G]):
        assert EOS not in [word for _, word in continued(((G, F),), said, said, shares=sure)]
    met = continued(((G, F),), [G, F], [A, G, F], shares=sure)
    assert met[:2] == [(1, EOS), (0, EOS)]


def test_ends_do_not_take_the_place_of_other_words() -> None:
    """Even where all of the best words are ends."""
    ends = (A, B, EOS, C)
    found = continued(((G,),), [], [], scores=ALONE, ends=ends)
    assert found == [(0, D), (0, G), (0, E), (0, F)]


def test_hypothesis_ends_without_its_terms_where_nothing_else_may_be_said() -> None:
    ends = (A, B)
    found = continued(((G,),), [], [], scores=ALONE, ends=ends, never=(EOS, C, D, E, F, G))
    assert found == [(0, A), (0, B)]


def test_beams_that_do_not_count_have_no_candidates() -> None:
    assert continued(((G,),), [], [], scores=[-np.inf, -np.inf]) == []


def test_what_is_forbidden_is_no_candidate() -> None:
    never = (B, EOS, C, D, E, G)
    assert continued(((G,), (A,)), [], [], scores=ALONE, never=never) == [(0, A), (0, F)]


def words_after(terms: tuple[tuple[int, ...], ...], said: list[int]) -> set[int]:
    """Gives the words that are candidates although they are not among the best."""
    found = continued(terms, said, said, scores=ALONE)
    return {word for _, word in found} & {E, F, G}


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], {G, E}),
        ([G], {F, E}),
        ([G, A], {G, E}),
        ([G, F], {E}),
        ([E], {F, G}),
        ([E, F, G], {F}),
        ([E, F, G, F], set()),
    ],
)
def test_next_word_of_each_term_that_is_unmet_is_wanted(said: list[int], wanted: set[int]) -> None:
    assert words_after(((G, F), (E, F)), said) == wanted


def test_terms_that_overlap_count_what_they_share() -> None:
    """G F is met; E may follow at once."""
    found = continued(((G, F), (F, E)), [G, F], [A, A], scores=[-5.0, 0.0])
    assert (0, E) in found[:2]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), size=st.integers(2, 4))
def test_beams_that_have_said_all_terms_go_on_as_without(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    scores = -random.exponential(1.0, size)
    found = [
        Distribution(random.normal(0, 2, 30).astype(np.float32), [], [normalize])
        for _ in range(size)
    ]
    said = [[*random.integers(0, 30, 3).tolist(), A, B, C] for _ in range(size)]
    ours = LexicalConstraints(((A, B), (C,)), [EOS]).candidates(scores, found, said)
    listed = [each.top(2 * size) for each in found]
    plain = rank(
        scores[None],
        np.stack([each.token_ids for each in listed])[None],
        np.stack([each.log_probabilities for each in listed])[None],
    )
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)
