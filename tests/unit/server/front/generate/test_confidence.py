import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqserve_server.front.generate.response import confidence, predictors

IDS = [5, 6, 7, 8, 9]


def test_a_surer_answer_has_more_confidence() -> None:
    sure, unsure = (confidence(score, IDS, 6) for score in (-0.3, -9.0))
    assert sure > 0.7 and unsure < 0.3


def test_a_long_answer_to_a_short_source_has_less() -> None:
    assert confidence(-0.6, IDS, 6) > confidence(-0.6, IDS, 2)
    assert confidence(-0.6, IDS, 6) > confidence(-0.6, IDS, 30)


def test_a_loop_has_less_than_words_that_come_again_by_and_by() -> None:
    loop, others = [1, 2, 3, 2, 3, 2, 3, 4], [1, 2, 3, 4, 2, 5, 3, 6]
    assert confidence(-1.0, loop, 9) < confidence(-1.0, others, 9)


def test_predictors() -> None:
    probability, ratio, repeated = predictors(-2.0, [1, 2, 3, 2, 3, 4, 4], 4)
    assert probability == pytest.approx(math.exp(-2.0 / 8))
    assert ratio == pytest.approx(math.log(2.0))
    assert repeated == pytest.approx(2 / 8)


def test_forced_tokens_have_no_part_in_the_mean() -> None:
    assert predictors(-2.0, IDS, 6, prefix=4)[0] == pytest.approx(math.exp(-1.0))


@given(
    st.floats(max_value=0.0, min_value=-1e30),
    st.lists(st.integers(0, 3), max_size=40),
    st.integers(1, 1000),
)
def test_it_is_between_0_and_1(score: float, ids: list[int], source_tokens: int) -> None:
    assert 0.0 < confidence(score, ids, source_tokens) < 1.0
