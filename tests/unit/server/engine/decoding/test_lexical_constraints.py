import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    D,
    E,
    F,
    G,
    SingleRequest,
    Table,
    after,
    always,
    decode,
    log,
    outputs_of,
    random_table,
    top_tokens_of,
)

from seqserve_server.contract.events import Hypothesis, StopReason
from seqserve_server.engine.decoding.beam_step import rank
from seqserve_server.engine.decoding.constraints import LexicalConstraints
from seqserve_server.engine.decoding.logits import Distribution, normalize
from seqserve_server.engine.step import MASKED_LOGIT

# The most probable first: A B EOS C D E F G.
PROBABILITIES = {A: 0.3, B: 0.25, EOS: 0.15, C: 0.1, D: 0.08, E: 0.06, F: 0.04, G: 0.02}


def distribution(probabilities: dict[int, float], suppressed: tuple[int, ...] = ()) -> Distribution:
    logs = [math.log(probabilities[token]) for token in range(VOCABULARY_SIZE)]
    logits = np.array(logs, np.float32)
    logits[list(suppressed)] += MASKED_LOGIT
    return Distribution(logits, [], [normalize])


def continuations(
    terms: tuple[tuple[int, ...], ...],
    *outputs: list[int],
    scores: Any = None,
    probabilities: dict[int, float] = PROBABILITIES,
    suppressed: tuple[int, ...] = (),
    end_ids: tuple[int, ...] = (EOS,),
) -> list[tuple[int, int]]:
    """Gives beam and token of each continuation; beams have equal scores by default."""
    scores = np.zeros(len(outputs)) if scores is None else np.array(scores)
    found = [distribution(probabilities, suppressed) for _ in outputs]
    listed = LexicalConstraints(terms, end_ids).continuations(scores, found, outputs)
    beams, tokens, log_probabilities, totals = (array[0].tolist() for array in listed)
    for beam, token, own, total in zip(beams, tokens, log_probabilities, totals, strict=True):
        assert own == pytest.approx(found[beam].log_probabilities[token])
        assert total == pytest.approx(scores[beam] + own)
    return list(zip(beams, tokens, strict=True))


FIRST_STEP = [0.0, -np.inf]
"""Scores of two beams of which only one counts, as in the first step."""


def test_there_is_a_bank_for_each_number_of_term_tokens() -> None:
    assert LexicalConstraints(((A,),), [EOS]).num_banks == 2
    assert LexicalConstraints(((A, B, C), (D, E)), [EOS]).num_banks == 6


def test_the_next_token_of_a_term_is_a_candidate_however_improbable() -> None:
    found = continuations(((G, A),), [], [], scores=FIRST_STEP)
    # One from each bank in turn, the fullest bank first; the first two are sorted by score.
    assert found == [(0, A), (0, G), (0, B), (0, C)]


def test_the_banks_share_the_beam() -> None:
    terms = ((G,), (F,))
    found = continuations(terms, [G, A], [A, A], [A, B], scores=[-9.0, 0.0, -0.5])
    # Bank 2 has only F after the first beam; bank 1 has the other tokens after the first beam,
    # and F and G after the other two.
    assert found == [(1, A), (1, F), (0, F), (2, F), (1, B), (1, G)]


def test_a_bank_with_more_term_tokens_comes_first() -> None:
    """With fewer beams than banks, the fullest banks stay."""
    outputs: list[list[int]] = [[G, F, E], [A, A], [A, G, F]]
    found = continuations(((G, F, E, D),), *outputs, scores=[-30.0, 0.0, -20.0])
    assert set(found[:3]) == {(0, D), (2, E), (1, G)}
    assert found[:3] == [(1, G), (2, E), (0, D)]


def test_a_term_that_is_broken_off_starts_anew() -> None:
    """After G only F advances the term; any other token puts the hypothesis into bank 0."""
    found = continuations(((G, F),), [G], [A], scores=[0.0, -9.0])
    assert found == [(0, F), (1, G), (0, A), (0, B)]


def test_no_hypothesis_ends_without_its_terms() -> None:
    likely_end = PROBABILITIES | {EOS: 100.0}
    for output in ([], [G], [A, G]):
        found = continuations(((G, F),), output, output, probabilities=likely_end)
        assert EOS not in [token for _, token in found]
    met = continuations(((G, F),), [G, F], [A, G, F], probabilities=likely_end)
    assert met[:2] == [(1, EOS), (0, EOS)]


def test_end_tokens_do_not_displace_other_tokens() -> None:
    """Not even where all of the most probable tokens end a hypothesis."""
    found = continuations(((G,),), [], [], scores=FIRST_STEP, end_ids=(A, B, EOS, C))
    assert found == [(0, D), (0, G), (0, E), (0, F)]


def test_a_hypothesis_ends_without_its_terms_where_no_other_token_is_left() -> None:
    suppressed = (EOS, C, D, E, F, G)
    found = continuations(((G,),), [], [], scores=FIRST_STEP, end_ids=(A, B), suppressed=suppressed)
    assert found == [(0, A), (0, B)]


def test_beams_that_do_not_count_have_no_candidates() -> None:
    assert continuations(((G,),), [], [], scores=[-np.inf, -np.inf]) == []


def test_a_suppressed_token_is_no_candidate() -> None:
    suppressed = (B, EOS, C, D, E, G)
    found = continuations(((G,), (A,)), [], [], scores=FIRST_STEP, suppressed=suppressed)
    assert found == [(0, A), (0, F)]


@pytest.mark.parametrize(
    ("output", "wanted"),
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
def test_the_next_token_of_each_unmet_term_is_a_candidate(
    output: list[int], wanted: set[int]
) -> None:
    found = continuations(((G, F), (E, F)), output, output, scores=FIRST_STEP)
    # E, F and G are too improbable to be listed otherwise.
    assert {token for _, token in found} & {E, F, G} == wanted


def test_terms_that_overlap_share_tokens() -> None:
    """G F is met; E may follow at once."""
    found = continuations(((G, F), (F, E)), [G, F], [A, A], scores=[-5.0, 0.0])
    assert (0, E) in found[:2]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), size=st.integers(2, 4))
def test_beams_with_all_terms_have_the_candidates_of_a_plain_search(seed: int, size: int) -> None:
    random = np.random.default_rng(seed)
    scores = -random.exponential(1.0, size)
    found = [
        Distribution(random.normal(0, 2, 30).astype(np.float32), [], [normalize])
        for _ in range(size)
    ]
    outputs = [[*random.integers(0, 30, 3).tolist(), A, B, C] for _ in range(size)]
    ours = LexicalConstraints(((A, B), (C,)), [EOS]).continuations(scores, found, outputs)
    listed = [each.top(2 * size) for each in found]
    plain = rank(
        scores[None],
        np.stack([each.token_ids for each in listed])[None],
        np.stack([each.log_probabilities for each in listed])[None],
    )
    for one, other in zip(ours, plain, strict=True):
        np.testing.assert_array_equal(one, other)


def with_terms(table: Table, *terms: tuple[int, ...], **options: Any) -> list[Hypothesis]:
    return decode(table, terms=terms, **{"beam_size": 3} | options)


def test_a_hypothesis_contains_its_terms_where_the_search_finds_best() -> None:
    table = after(
        {
            (): {A: 0.6, D: 0.3, B: 0.1},
            (A,): {B: 0.7, C: 0.2, EOS: 0.1},
            (A, C): {D: 0.6, EOS: 0.3, A: 0.1},
            (A, C, D): {EOS: 1.0},
            (A, B): {EOS: 0.9, A: 0.1},
        }
    )
    [free] = with_terms(table)
    assert free.token_ids == [A, B]
    [best] = with_terms(table, (C, D))
    assert (best.token_ids, best.unmet_terms) == ([A, C, D], [])
    assert best.score == log(0.6, 0.2, 0.6)


def missing(output: list[int], terms: list[tuple[int, ...]]) -> list[int]:
    """Lists the indices of the terms that an output does not contain."""
    runs = [
        {tuple(output[begin : begin + len(term)]) for begin in range(len(output))} for term in terms
    ]
    return [index for index, term in enumerate(terms) if term not in runs[index]]


@pytest.mark.parametrize(("count", "num_steps"), [(1, 2), (2, 3)])
def test_a_search_with_terms_ends_once_its_full_bank_has_finished(
    count: int, num_steps: int
) -> None:
    """Only hypotheses of one bank end: those that contain all terms."""
    table = after({(): {C: 0.9, A: 0.1}, (C,): {EOS: 0.6, A: 0.4}})
    single = SingleRequest(table, beam_size=2, terms=((C,),), num_hypotheses=count)
    assert outputs_of(single.finish()) == [[C], [C, A]][:count]
    assert single.num_steps == num_steps


def test_the_prefix_may_contain_a_term() -> None:
    table = after({(B, C): {A: 0.6, D: 0.4}, (B, C, A): {EOS: 1.0}})
    [found] = with_terms(table, (B, C), prefix=(B, C))
    assert (found.token_ids, found.unmet_terms) == ([B, C, A], [])


def test_each_hypothesis_with_terms_has_its_own_top_tokens() -> None:
    table = after({(): {A: 0.7, B: 0.3}, (A,): {C: 0.6, D: 0.4}, (B,): {D: 0.6, C: 0.4}})
    found = with_terms(table, (D,), num_hypotheses=3, return_top_tokens=2)
    assert outputs_of(found)[:2] == [[A, D], [B, D]]
    assert [step[:2] for step in top_tokens_of(found[0])] == [[A, B], [C, D], [EOS, A]]
    assert [step[:2] for step in top_tokens_of(found[1])] == [[A, B], [D, C], [EOS, A]]


@pytest.mark.parametrize("count", [1, 3])
def test_terms_that_cannot_be_generated_are_reported_as_unmet(count: int) -> None:
    """The term repeats a token, and every probable token ends the hypothesis."""
    table = always({EOS: 0.4, A: 0.3, B: 0.2, C: 0.1})
    options = {"end_ids": (EOS, A, B, C), "no_repeat_ngram_size": 1, "num_hypotheses": count}
    found = with_terms(table, (D, D), **options)
    assert found
    assert [one.unmet_terms for one in found] == [[0]] * len(found)


@settings(deadline=None, max_examples=30)
@given(data=st.data(), seed=st.integers(0, 2**32), size=st.integers(2, 5))
def test_every_hypothesis_contains_its_terms_or_lists_those_it_lacks(
    data: st.DataObject, seed: int, size: int
) -> None:
    tokens = st.lists(st.integers(1, VOCABULARY_SIZE - 1), min_size=1, max_size=3).map(tuple)
    terms = data.draw(st.lists(tokens, min_size=1, max_size=3, unique=True))
    found = with_terms(random_table(seed), *terms, beam_size=size, num_hypotheses=size)
    for one in found:
        assert one.unmet_terms == missing(one.token_ids, terms)
        # Only the maximum length ends a hypothesis that lacks a term.
        assert not one.unmet_terms or one.stop_reason is StopReason.LENGTH
    ranks = [(len(one.unmet_terms), -(one.normalized_score or 0.0)) for one in found]
    assert ranks == sorted(ranks)
    # The fullest bank always stays in the beam, and the length leaves room for all terms.
    assert found[0].unmet_terms == []
