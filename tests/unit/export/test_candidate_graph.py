"""A step that is given the numbers of candidates computes the bits of one that gathers them.

The artifacts have a projection in floats, in eight bits by both schemes, and one with a bias.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.exported import Exporter
from tests.graph_nodes import nodes_of
from tests.step_graphs import with_gathering_steps
from tests.unit.export.conftest import opened

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.packing import CrossKV
from seqserve_server.engine.runtime import Runtime

SLOTS, EOS = 4, 2
MIDDLE = 128
"""The zero point of the inputs of products."""
SOURCES = [[5, 6, 7, EOS], [9, EOS], [60, 12, 40, 41, 42, EOS]]


class Pair(NamedTuple):
    """One artifact with both graphs."""

    gathers: Runtime
    is_given: Runtime


ARTIFACTS = {
    "fp32": "tiny_artifact",
    "int8": "tiny_int8_artifact",
    "row-scaled": "tiny_row_scaled_artifact",
    "marian": "imported_marian",
}


@pytest.fixture(scope="module", params=ARTIFACTS)
def pair(
    request: pytest.FixtureRequest, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> Pair:
    folder: Path = request.getfixturevalue(ARTIFACTS[request.param])
    traced, place = exporter.traced_decoder(request.param), tmp_path_factory.mktemp("steps") / "1"
    folders = with_gathering_steps(folder, traced, place), folder
    gathers, is_given = map(opened, folders)
    assert is_given.candidate_tables and not gathers.candidate_tables
    return Pair(gathers, is_given)


@pytest.fixture(scope="module")
def encoded(pair: Pair) -> CrossKV:
    return pair.gathers.encode(SOURCES)


class Event(NamedTuple):
    """What happens before a step."""

    row: int
    source: int
    candidates: frozenset[int] | None
    """Of the row that joins; None for all tokens."""
    shares: bool
    """Whether the next row takes them too."""
    biased: bool
    top_k: int
    returns_logprobs: bool


tokens = st.integers(0, 383)
few = st.frozensets(tokens, min_size=1, max_size=30)
events = st.builds(
    Event,
    row=st.integers(0, SLOTS - 1),
    source=st.integers(0, len(SOURCES) - 1),
    # More than a quarter of the vocabulary now and then, all of which is computed then.
    candidates=few | few | few | st.none() | st.frozensets(tokens, min_size=100, max_size=150),
    shares=st.booleans(),
    biased=st.booleans(),
    top_k=st.sampled_from([0, 0, 4]),
    returns_logprobs=st.booleans(),
)


@examples(40)
@given(st.integers(1, SLOTS), st.lists(events, min_size=1, max_size=10))
def test_rows_that_join_and_leave_get_the_same_bits(
    pair: Pair, encoded: CrossKV, rows: int, history: list[Event]
) -> None:
    caches = [SlotCache(runtime, SLOTS) for runtime in pair]
    for cache in caches:
        for row in range(SLOTS):
            cache.join(row, encoded, row % len(SOURCES))
    for event in history:
        results = [_stepped(cache, encoded, rows, event) for cache in caches]
        for before, now in zip(*results, strict=True):
            np.testing.assert_array_equal(before, now)


def _stepped(
    cache: SlotCache, encoded: CrossKV, rows: int, event: Event
) -> Iterator[np.ndarray | None]:
    """Lets a row join, runs a step, and gives all that it computes of each row."""
    first = event.row % rows
    cache.release(first)
    cache.join(first, encoded, event.source)
    if event.candidates is not None:
        tokens = {token % cache.vocabulary_size for token in event.candidates}
        candidates = np.array(sorted(tokens))
        for row in range(first, min(first + 1 + event.shares, rows)):
            cache.limit(row, candidates)
    cache.suppress(first, [EOS] * event.biased)
    cache.set_outputs(top_k=event.top_k, logits=False)
    cache.advance(rows, return_logprobs=event.returns_logprobs)
    yield cache.tokens[:rows].copy()
    for row in range(rows):
        candidates = cache.candidates(row)
        yield from candidates or (None, None)
        if event.returns_logprobs:
            yield cache.log_probabilities[row].copy()
            yield from cache.top_tokens(np.array([row]))


def test_no_step_gathers_or_turns_numbers_of_candidates(
    tiny_int8_artifact: Path, exporter: Exporter
) -> None:
    before, after = (
        onnx.load(path, load_external_data=False).graph
        for path in (exporter.traced_decoder("int8"), tiny_int8_artifact / "decoder.onnx")
    )
    assert not [node for node in nodes_of(after) if "allowed_tokens" in node.input[1:]]
    names = [value.name for value in before.input]
    more = ["allowed_rows", "kept_0", "kept_1", "kept_2"]
    assert [value.name for value in after.input] == names + more
    assert list(after.output) == list(before.output)


def test_numbers_of_candidates_are_those_of_the_weights(tiny_artifact: Path) -> None:
    runtime = opened(tiny_artifact)
    [table] = runtime.candidate_tables
    tokens = np.random.default_rng(1).integers(0, 384, (3, 64))
    [found] = runtime.candidate_weights(tokens)
    assert found.shape == (3, *table.shape) and found.dtype == table.dtype
    model = onnx.load(tiny_artifact / "decoder.onnx")
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer]
    fitting = [weight for weight in weights if weight.shape == (384, table.shape[1])]
    assert any((found == weight[tokens]).all() for weight in fitting)


def test_a_product_of_eight_bits_sums_integers(tiny_int8_artifact: Path) -> None:
    """Without a zero point, as the kernel for a single row has none."""
    graph = onnx.load(tiny_int8_artifact / "decoder.onnx", load_external_data=False).graph
    products = [node for node in nodes_of(graph) if "kept_0" in node.input]
    # One of steps without any other row, and one of others.
    assert [(node.op_type, len(node.input)) for node in products] == [("MatMulInteger", 2)] * 2
    runtime = opened(tiny_int8_artifact)
    tokens = np.random.default_rng(1).integers(0, 384, (3, 64))
    weights, _, zero_sums = runtime.candidate_weights(tokens)
    expected = MIDDLE * weights.sum(axis=1, keepdims=True, dtype=np.int32)
    np.testing.assert_array_equal(zero_sums, expected)


def test_half_floats_are_gathered_by_each_step(tiny_fp16_artifact: Path) -> None:
    names = Manifest.load(tiny_fp16_artifact).files
    assert not {"candidates.onnx", "draft.onnx"} & names.keys()
    assert opened(tiny_fp16_artifact).candidate_tables == []
