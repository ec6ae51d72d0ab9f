from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.server.engine.decoding.table import made
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest

from seqserve_server.contract.options import Sampling
from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.decoding.step_outputs import RequestedOutputs, StepOutputs
from seqserve_server.engine.step import StepSizes


def drawing(top_k: int) -> Sampling:
    return Sampling(1.0, top_k, 1.0, 0.0, seed=1)


@pytest.mark.parametrize(
    ("options", "top_k", "logits"),
    [
        ({}, 0, False),
        ({"prefix": (5,), "stops": ("a",)}, 0, False),
        ({"return_top_tokens": 3}, 3, False),
        ({"repetition_penalty": 1.1}, 0, True),
        ({"sampling": drawing(0)}, 0, True),
        # The graph finds so many best words for less.
        ({"sampling": drawing(5)}, 5, False),
        ({"sampling": drawing(5), "return_top_tokens": 7}, 7, False),
        ({"sampling": drawing(64)}, 64, False),
        ({"sampling": drawing(65)}, 0, True),
        # A beam has twice as many continuations as hypotheses.
        ({"beam_size": 3}, 6, False),
        ({"beam_size": 3, "return_top_tokens": 7}, 7, False),
        ({"beam_size": 3, "terms": ((5,),)}, 6, True),
        ({"beam_size": 3, "prefix": (5,), "prefix_bias_beta": 0.5}, 6, True),
        ({"num_hypotheses": 9}, 0, False),
        ({"num_hypotheses": 9, "return_alternatives": True}, 9, False),
        ({"num_hypotheses": 9, "return_alternatives": True, "beam_size": 3}, 9, False),
        ({"num_hypotheses": 3, "return_alternatives": True, "beam_size": 3}, 6, False),
    ],
    ids=str,
)
def test_only_what_is_needed_is_asked_for(
    options: dict[str, Any], top_k: int, logits: bool
) -> None:
    assert StepOutputs.of(made(**options)) == StepOutputs(top_k, logits)


WORDS = make_manifest().architecture.vocabulary_size


class FakeCache:
    """Stands where the cache would be; the score of a word is its number, and 100 for each row."""

    vocabulary_size = 100

    def __init__(self) -> None:
        self.projects = True
        self.requested: list[list[int]] = []
        self.masks: dict[int, list[int]] = {}

    def request(self, *, top_k: int, logits: bool, allowed: NDArray[Any], projects: bool) -> None:
        self.requested.append(allowed.tolist())
        self.projects = projects

    def allowed_logits(self, row: int) -> NDArray[Any]:
        return np.array(self.requested[-1], np.float32) + 100 * row

    def suppressed(self, row: int) -> Sequence[int]:
        return self.masks.get(row, ())


def only(tokens: tuple[int, ...]) -> StepOutputs:
    return StepOutputs(0, False, tokens)


@pytest.fixture
def cache() -> FakeCache:
    return FakeCache()


@pytest.fixture
def outputs(cache: FakeCache) -> RequestedOutputs:
    return RequestedOutputs(cast(SlotCache, cache))


def test_steps_score_each_word_of_any_row_once(outputs: RequestedOutputs, cache: FakeCache) -> None:
    outputs.add(only((4, 9)), 1)
    outputs.add(only((2, 4, 7)), 1)
    assert cache.requested[-1] == [2, 4, 7, 9]


def test_row_gets_the_scores_of_its_own_words(outputs: RequestedOutputs, cache: FakeCache) -> None:
    outputs.add(only((4, 9)), 1)
    outputs.add(only((2, 4, 7)), 1)
    words, found = outputs.allowed_logits(1, (4, 9))
    assert (words.tolist(), found.tolist()) == ([4, 9], [104.0, 109.0])
    words, found = outputs.allowed_logits(3, (2, 4, 7))
    assert (words.tolist(), found.tolist()) == ([2, 4, 7], [302.0, 304.0, 307.0])


def test_what_a_row_must_not_say_is_out_of_reach(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((2, 4, 7)), 2)
    cache.masks[1] = [4, 5]
    assert outputs.allowed_logits(1, (2, 4, 7))[1].tolist() == [102.0, MASKED_LOGIT, 107.0]
    assert outputs.allowed_logits(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_steps_are_told_anew_only_where_it_changes_them(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((4, 9)), 2)
    outputs.add(only((4, 9)), 1)
    assert cache.requested == [[4, 9]]
    outputs.remove(only((4, 9)))
    outputs.remove(only((4, 9)))
    assert cache.requested == [[4, 9]]
    outputs.remove(only((4, 9)))
    assert cache.requested == [[4, 9], []]


def test_words_leave_with_the_last_row_that_has_them(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((4, 9)), 1)
    outputs.add(only((2, 4, 7)), 2)
    outputs.remove(only((2, 4, 7)))
    outputs.remove(only((4, 9)))
    assert cache.requested[-1] == [2, 4, 7]
    assert outputs.allowed_logits(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_all_words_are_looked_at_unless_every_row_has_its_own(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only(()), 1)
    assert cache.projects
    outputs.add(only((4, 9)), 1)
    assert cache.projects
    outputs.remove(only(()))
    assert not cache.projects
    outputs.remove(only((4, 9)))
    assert cache.projects


class Asked:
    """Stands for the step, and notes what is asked of it."""

    sizes: StepSizes

    def run(self, rows: int, sizes: StepSizes) -> None:
        self.sizes = sizes


def asked(cache: SlotCache) -> tuple[bool, bool, bool]:
    """Tells whether all scores are given out, whether all words are projected, and some alone."""
    step = cache._step = cast(Any, Asked())
    cache.advance(1)
    return step.sizes.logits > 0, step.sizes.projects, step.sizes.allowed_groups > 0


def test_what_is_cheaper_is_asked_of_the_step() -> None:
    cache = SlotCache(FakeRuntime(), slots=4)
    outputs = RequestedOutputs(cache)
    few, others = tuple(range(WORDS // 8)), tuple(range(WORDS // 8, WORDS // 3))
    outputs.add(only(few), 1)
    assert asked(cache) == (False, False, True)
    outputs.add(only(()), 2)
    assert asked(cache) == (False, True, True)
    # Together they are more than a quarter.
    outputs.add(only(others), 1)
    assert asked(cache) == (True, True, False)
    outputs.remove(only(others))
    assert asked(cache) == (False, True, True)
    outputs.remove(only(()))
    outputs.remove(only(()))
    assert asked(cache) == (False, False, True)
    outputs.remove(only(few))
    assert asked(cache) == (False, True, False)
