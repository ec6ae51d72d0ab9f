import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.server.engine.fake_runtime import (
    EOS,
    VOCABULARY_SIZE,
    FakeRuntime,
    write_allowed_logits,
)

from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.candidate_step import CandidateStep, Table
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import StepSizes

SLOTS = 4


class LogitsRuntime(FakeRuntime):
    """Stands for a model; the logits of each row are those that a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.of_rows = np.zeros((SLOTS, VOCABULARY_SIZE), np.float32)
        self.sizes = StepSizes()

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        self.inputs, self.outputs = inputs, outputs
        return self

    def run(self, rows: int, sizes: StepSizes) -> None:
        self.sizes = sizes
        outputs = self.outputs
        write_allowed_logits(self.of_rows[:rows], sizes, self.inputs, outputs)
        # Tokens that no row with candidates may take.
        outputs["next_tokens"][: rows * sizes.projects] = EOS
        flat = self.of_rows[:rows, : sizes.logits].ravel()
        outputs["logits"][: len(flat)] = flat


@pytest.fixture
def runtime() -> LogitsRuntime:
    return LogitsRuntime()


@pytest.fixture
def cache(runtime: LogitsRuntime) -> SlotCache:
    return filled(runtime)


def filled(runtime: LogitsRuntime) -> SlotCache:
    cache = SlotCache(runtime, SLOTS)
    for row in range(SLOTS):
        cache.join(row, runtime.encode([[7, 8]]), 0)
    return cache


def limit(cache: SlotCache, row: int, *tokens: int) -> None:
    cache.limit(row, np.array(tokens))


def computed(runtime: LogitsRuntime, row: int) -> set[int]:
    """Gives the tokens whose logits for a row the last step computed."""
    shape = runtime.sizes.allowed_groups, runtime.sizes.allowed_rows
    rows = runtime.inputs["allowed_rows"][: math.prod(shape)].reshape(shape)
    return set(runtime.inputs["allowed_tokens"][: shape[0]][(rows == row).any(axis=1)].ravel())


def test_a_step_computes_for_each_row_its_own_candidates(
    runtime: LogitsRuntime, cache: SlotCache
) -> None:
    runtime.of_rows[:] = np.arange(VOCABULARY_SIZE) + 100 * np.arange(SLOTS)[:, None]
    limit(cache, 0, 4, 9)
    limit(cache, 1, 4, 7, 12)
    cache.advance(2)
    assert runtime.sizes == StepSizes(allowed_groups=2, projects=False)
    assert [computed(runtime, row) for row in range(2)] == [{4, 9}, {4, 7, 12}]
    assert cache.tokens[:2, 0].tolist() == [9, 12]
    found = [cache.candidates(row) for row in range(3)]
    assert [None if one is None else (one[0].tolist(), one[1].tolist()) for one in found] == [
        ([4, 9], [4.0, 9.0]),
        ([4, 7, 12], [104.0, 107.0, 112.0]),
        None,
    ]


def test_rows_that_share_candidates_share_their_groups(
    runtime: LogitsRuntime, cache: SlotCache
) -> None:
    runtime.of_rows[:] = np.arange(VOCABULARY_SIZE) * [[1], [-1], [1], [-1]]
    shared = np.array([4, 7, 9, 12, 30])
    limit(cache, 2, 5, 8)
    # Equal candidates of other requests are other sets.
    for is_one, groups, rows in ((True, 3, 3), (False, 7, 1)):
        for row in (0, 1, 3):
            cache.limit(row, shared if is_one else shared.copy())
        cache.advance(4)
        sizes = StepSizes(allowed_groups=groups, allowed_rows=rows, projects=False)
        assert runtime.sizes == sizes
        assert cache.tokens[:, 0].tolist() == [30, 4, 8, 4]


def test_the_whole_vocabulary_is_computed_while_some_row_chooses_from_it(
    runtime: LogitsRuntime, cache: SlotCache
) -> None:
    runtime.of_rows[:, 9] = 1.0
    limit(cache, 0, 4, 9)
    cache.advance(2)
    assert (runtime.sizes.projects, runtime.sizes.allowed_groups) == (True, 1)
    assert cache.tokens[:2, 0].tolist() == [9, EOS]
    limit(cache, 1, 4, 5)
    cache.advance(2)
    assert not runtime.sizes.projects
    cache.release(1)
    cache.release(0)
    cache.advance(2)
    assert (runtime.sizes.projects, runtime.sizes.allowed_groups) == (True, 0)
    assert cache.tokens[:2, 0].tolist() == [EOS, EOS]


def test_many_candidates_take_the_logits_of_the_whole_vocabulary(
    runtime: LogitsRuntime, cache: SlotCache
) -> None:
    runtime.of_rows[:2, 30:] = np.arange(VOCABULARY_SIZE - 30)
    few, many = VOCABULARY_SIZE // 8, VOCABULARY_SIZE // 3
    limit(cache, 0, *range(few))
    limit(cache, 1, *range(30, 30 + many))
    cache.advance(2)
    sizes = runtime.sizes
    assert (sizes.logits, sizes.projects, sizes.allowed_groups) == (VOCABULARY_SIZE, True, 0)
    assert cache.tokens[:2, 0].tolist() == [0, 29 + many]
    cache.release(1)
    cache.advance(1)
    assert (runtime.sizes.logits, runtime.sizes.projects) == (0, False)


def test_no_log_probability_is_computed_unless_asked_for(
    runtime: LogitsRuntime, cache: SlotCache
) -> None:
    limit(cache, 0, 4, 7)
    cache.advance(1, return_logprobs=False)
    assert cache.log_probabilities[0] == 0.0


def test_a_logit_that_is_no_number_stops_no_step(runtime: LogitsRuntime, cache: SlotCache) -> None:
    runtime.of_rows[0] = np.nan
    limit(cache, 0, 4, 7)
    limit(cache, 1, 5, 8)
    cache.advance(2)
    assert cache.tokens[:2, 0].tolist() == [4, 5]


def drawn(seed: int) -> Array:
    """Draws logits, many of them equal."""
    random = np.random.default_rng(seed)
    few = random.choice([-3.5, -0.0, 0.0, 0.25, 2.0], VOCABULARY_SIZE)
    values: Array = np.where(random.random(VOCABULARY_SIZE) < 0.5, few, random.normal(size=50) * 9)
    return values.astype(np.float32)


rows_of_candidates = st.lists(
    st.tuples(
        st.integers(0, 2**32).map(drawn), st.sets(st.integers(0, VOCABULARY_SIZE - 1), min_size=1)
    ),
    min_size=1,
    max_size=SLOTS,
)


def outcome(rows: list[tuple[Array, set[int]]], top_k: int) -> list[tuple[Any, ...]]:
    """Gives all that one step tells of each row, in bits."""
    runtime = LogitsRuntime()
    cache = filled(runtime)
    cache.set_outputs(top_k=top_k, logits=False)
    for row, (values, tokens) in enumerate(rows):
        runtime.of_rows[row] = values
        limit(cache, row, *sorted(tokens))
    cache.advance(len(rows))
    tokens, found = cache.top_tokens(range(len(rows)))
    return [
        (int(cache.tokens[row, 0]), cache.log_probabilities[row].tobytes(), listed, bits)
        for row, (listed, bits) in enumerate(
            zip(tokens.tolist(), map(Array.tobytes, found), strict=True)
        )
    ]


@given(rows=rows_of_candidates, top_k=st.integers(1, 6))
def test_a_row_chooses_beside_others_what_it_chooses_alone(
    rows: list[tuple[Array, set[int]]], top_k: int
) -> None:
    together = outcome(rows, top_k)
    for row, found in zip(rows, together, strict=True):
        assert [found] == outcome([row], top_k)


@given(rows=rows_of_candidates, top_k=st.integers(1, 6))
def test_the_best_candidates_come_first_and_among_equals_the_lowest(
    rows: list[tuple[Array, set[int]]], top_k: int
) -> None:
    for (values, tokens), found in zip(rows, outcome(rows, top_k), strict=True):
        ranked = sorted(tokens, key=lambda token: (-values[token], token))
        assert found[0] == ranked[0]
        assert found[2] == [*ranked, *[EOS] * top_k][:top_k]


def test_weights_of_candidates_take_a_bounded_amount_of_memory() -> None:
    tables = [Table("kept_0", (2048, 64), np.dtype("f4")), Table("kept_1", (64, 1), np.dtype("f4"))]
    step = CandidateStep(
        32, 50_000, tables, lambda tokens: [], lambda tokens: (-(-tokens // 64), 64)
    )
    kept = sum(step.inputs[table.input].nbytes for table in tables)
    assert 120 << 20 < kept < 130 << 20
