"""What steps compute: the union of the outputs that rows need, at the lowest cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.server.engine.decoding.table import make_options, make_sampling
from tests.unit.server.engine.fake_runtime import VOCABULARY_SIZE, FakeRuntime

from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.decoding.step_outputs import RequestedOutputs, StepOutputs
from seqserve_server.engine.step import StepSizes


@pytest.mark.parametrize(
    ("options", "top_k", "logits"),
    [
        ({}, 0, False),
        ({"prefix": (5,), "stops": ("a",)}, 0, False),
        ({"return_top_tokens": 3}, 3, False),
        ({"repetition_penalty": 1.1}, 0, True),
        ({"sampling": make_sampling(top_k=0)}, 0, True),
        # The graph lists this many top tokens itself.
        ({"sampling": make_sampling(top_k=5)}, 5, False),
        ({"sampling": make_sampling(top_k=5), "return_top_tokens": 7}, 7, False),
        ({"sampling": make_sampling(top_k=64)}, 64, False),
        ({"sampling": make_sampling(top_k=65)}, 0, True),
        # A beam search ranks twice as many continuations as it has beams.
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
def test_a_row_needs_only_what_its_options_take(
    options: dict[str, Any], top_k: int, logits: bool
) -> None:
    assert StepOutputs.of(make_options(**options)) == StepOutputs(top_k, logits)


class FakeCache:
    """Stands for the cache; the logit of a token is its id plus 100 times the row."""

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


def test_a_step_computes_each_allowed_token_once_and_each_row_gets_its_own(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((4, 9)), 1)
    outputs.add(only((2, 4, 7)), 1)
    assert cache.requested[-1] == [2, 4, 7, 9]
    tokens, logits = outputs.allowed_logits(1, (4, 9))
    assert (tokens.tolist(), logits.tolist()) == ([4, 9], [104.0, 109.0])
    tokens, logits = outputs.allowed_logits(3, (2, 4, 7))
    assert (tokens.tolist(), logits.tolist()) == ([2, 4, 7], [302.0, 304.0, 307.0])


def test_a_suppressed_token_is_masked_among_the_allowed_ones(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((2, 4, 7)), 2)
    cache.masks[1] = [4, 5]
    assert outputs.allowed_logits(1, (2, 4, 7))[1].tolist() == [102.0, MASKED_LOGIT, 107.0]
    assert outputs.allowed_logits(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_outputs_are_requested_again_only_where_they_change(
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


def test_allowed_tokens_are_computed_until_the_last_row_that_needs_them_leaves(
    outputs: RequestedOutputs, cache: FakeCache
) -> None:
    outputs.add(only((4, 9)), 1)
    outputs.add(only((2, 4, 7)), 2)
    outputs.remove(only((2, 4, 7)))
    assert cache.requested[-1] == [2, 4, 7, 9]
    outputs.remove(only((4, 9)))
    assert cache.requested[-1] == [2, 4, 7]
    assert outputs.allowed_logits(0, (2, 4, 7))[1].tolist() == [2.0, 4.0, 7.0]


def test_the_whole_vocabulary_is_computed_unless_every_row_allows_only_some_tokens(
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


class SizesRuntime(FakeRuntime):
    """Stands for a model whose steps compute nothing; records the sizes of the last step."""

    sizes: StepSizes

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        return self

    def run(self, rows: int, sizes: StepSizes) -> None:
        self.sizes = sizes


def test_a_step_gathers_few_allowed_tokens_and_computes_all_logits_for_many() -> None:
    runtime = SizesRuntime()
    cache = SlotCache(runtime, slots=4)
    outputs = RequestedOutputs(cache)

    def computed() -> tuple[bool, bool, bool]:
        """Whether a step returns all logits, projects, and returns logits of allowed tokens."""
        cache.advance(1)
        sizes = runtime.sizes
        return sizes.logits > 0, sizes.projects, sizes.allowed_groups > 0

    few = tuple(range(VOCABULARY_SIZE // 8))
    others = tuple(range(VOCABULARY_SIZE // 8, VOCABULARY_SIZE // 3))
    outputs.add(only(few), 1)
    assert computed() == (False, False, True)
    outputs.add(only(()), 2)
    assert computed() == (False, True, True)
    # Together they are more than a quarter of the vocabulary.
    outputs.add(only(others), 1)
    assert computed() == (True, True, False)
    outputs.remove(only(others))
    assert computed() == (False, True, True)
    outputs.remove(only(()))
    outputs.remove(only(()))
    assert computed() == (False, False, True)
    outputs.remove(only(few))
    assert computed() == (False, True, False)
