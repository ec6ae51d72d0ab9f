import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.decoding.table import make_options

from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.contract.options import Sampling, matched_prefix, missing_terms


def drawing(top_k: int) -> Sampling:
    return Sampling(1.0, top_k, 1.0, 0.0, seed=1)


TRAITS = ("needs_distribution", "is_inspected", "is_plain")
ALL, INSPECTED, PLAIN, NEITHER = "needs_distribution is_inspected", "is_inspected", "is_plain", ""


@pytest.mark.parametrize(
    ("options", "traits"),
    [
        ({}, PLAIN),
        ({"length_penalty": 3.0}, PLAIN),
        ({"return_scores": False}, PLAIN),
        ({"return_attention": True}, PLAIN),
        ({"return_token_scores": True}, NEITHER),
        ({"beam_size": 4, "num_hypotheses": 2, "patience": 2.0}, NEITHER),
        ({"beam_size": 4, "coverage_penalty": 0.5}, NEITHER),
        ({"sampling": drawing(1)}, NEITHER),
        ({"sampling": drawing(MAX_TOP_K)}, NEITHER),
        ({"sampling": drawing(MAX_TOP_K + 1)}, ALL),
        ({"sampling": drawing(0)}, NEITHER),
        ({"sampling": drawing(0), "repetition_penalty": 1.2}, ALL),
        ({"sampling": Sampling(1.0, 0, 0.9, 0.0, 1)}, ALL),
        ({"repetition_penalty": 1.2}, ALL),
        ({"prefix": (5,), "prefix_bias_beta": 0.1}, ALL),
        ({"beam_size": 2, "terms": ((5,),)}, ALL),
        ({"vocabulary": (5, 6)}, PLAIN),
        ({"prefix": (5,)}, INSPECTED),
        ({"stops": ("a",)}, INSPECTED),
        ({"end_ids": (5,)}, INSPECTED),
        ({"return_top_tokens": 1}, INSPECTED),
        ({"min_decoding_length": 3}, PLAIN),
        ({"no_repeat_ngram_size": 3}, PLAIN),
        ({"suppressed": ((3,),)}, PLAIN),
        ({"return_alternatives": True}, INSPECTED),
    ],
    ids=str,
)
def test_rows_are_looked_at_only_where_more_is_asked_for(
    options: dict[str, Any], traits: str
) -> None:
    """The best word is all that a plain request needs; what is banned is kept from the graph."""
    found = make_options(**options)
    assert [trait for trait in TRAITS if getattr(found, trait)] == traits.split()


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({}, 1),
        ({"beam_size": 4, "num_hypotheses": 2}, 4),
        ({"sampling": drawing(0), "num_hypotheses": 3}, 3),
        ({"num_hypotheses": 3, "return_alternatives": True}, 3),
        ({"beam_size": 4, "num_hypotheses": 3, "return_alternatives": True}, 12),
    ],
    ids=str,
)
def test_request_takes_a_row_for_each_hypothesis_that_is_kept(
    options: dict[str, Any], rows: int
) -> None:
    assert make_options(**options).rows == rows


def test_some_words_are_banned_only_by_what_bans() -> None:
    for banning in (
        {"min_decoding_length": 1},
        {"suppressed": ((3, 4),)},
        {"no_repeat_ngram_size": 2},
    ):
        assert make_options(**banning).may_suppress
    free = make_options(stops=("a",), end_ids=(5,), prefix=(1, 2), repetition_penalty=2.0)
    assert not free.may_suppress


def test_words_that_are_never_said_need_no_look_at_what_was() -> None:
    """So that rows that never say the unknown token need not be inspected."""
    assert not make_options(suppressed=((1,), (7,))).suppression_depends_on_output
    assert make_options(suppressed=((1,), (3, 4))).suppression_depends_on_output


def test_attention_is_needed_where_it_is_shown_or_ranks() -> None:
    assert not make_options(beam_size=4).needs_attention
    assert make_options(return_attention=True).needs_attention
    assert make_options(beam_size=4, coverage_penalty=0.1).needs_attention


def test_alternatives_begin_after_the_prefix() -> None:
    some = make_options(return_alternatives=True, prefix=(4, 5))
    assert [length for length in range(9) if some.is_branching_token(length)] == [3]
    assert make_options(return_alternatives=True).is_branching_token(1)
    assert not any(make_options(prefix=(4, 5)).is_branching_token(length) for length in range(9))


def test_options_survive_their_small_pickle() -> None:
    beam = make_options(beam_size=4, terms=((5, 6),), sampling=drawing(3))
    for options in (make_options(), beam):
        data = pickle.dumps(options)
        assert pickle.loads(data) == options
    assert len(pickle.dumps(make_options())) < len(data) < 300


# ---- terms

words_of_two = st.lists(st.integers(1, 2), max_size=8)
term_of_two = st.lists(st.integers(1, 2), min_size=1, max_size=4).map(tuple)


@given(words=words_of_two, term=term_of_two)
def test_terms_are_sequences(words: list[int], term: tuple[int, ...]) -> None:
    """Compares with substrings: each token is a letter."""
    text, part = "".join(map(str, words)), "".join(map(str, term))
    assert missing_terms((term,), words) == ([] if part in text else [0])
    lengths = [count for count in range(len(part)) if text.endswith(part[:count])]
    assert matched_prefix(words, term) == max(lengths)
