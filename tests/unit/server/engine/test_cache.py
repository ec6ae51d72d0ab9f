from typing import Any

import numpy as np
import pytest
from tests.unit.server.engine.fake_runtime import (
    BOS,
    EOS,
    MAX_SOURCE,
    MAX_TARGET,
    RECURRENT,
    FakeRuntime,
    make_manifest,
    next_token,
)

from seqserve_server.artifact.manifest import Limits
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.step import StepSizes
from seqserve_server.engine.token_masks import TokenMasks


class IdleRuntime(FakeRuntime):
    """Stands for a model whose steps compute nothing; records their sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[StepSizes] = []
        self.num_rows = 0

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        super().step(inputs, outputs)
        return self

    def run(self, rows: int, sizes: StepSizes) -> None:
        self.num_rows = rows
        self.sizes.append(sizes)

    def masked(self) -> list[list[int]]:
        """Gives the tokens of each row that the last step masked."""
        width = self.sizes[-1].biases
        tokens, values = (
            self.inputs[name][: self.num_rows * width].reshape(self.num_rows, width)
            for name in ("bias_tokens", "bias_values")
        )
        return [
            sorted(set(row[value < -1e29].tolist()))
            for row, value in zip(tokens, values, strict=True)
        ]


# They differ in length and in their last token, which the cache keeps a second time.
SOURCES = [[7, 8, 9], [11, 12], [20, 21, 22, 23, 24, 25]]


@pytest.fixture(params=["attention", "ssru"])
def runtime(request: pytest.FixtureRequest) -> FakeRuntime:
    """A model whose decoder keeps the past of a target in either way."""
    changes = {"architecture": RECURRENT} if request.param == "ssru" else {}
    return FakeRuntime(make_manifest(**changes))


def filled(runtime: FakeRuntime, slots: int = 3) -> SlotCache:
    """Makes a cache that holds one source in each row."""
    cache = SlotCache(runtime, slots)
    for row, source in enumerate(SOURCES):
        cache.join(row, runtime.encode([source]), 0)
    return cache


def run(cache: SlotCache, steps: int, rows: int) -> list[list[int]]:
    """Runs steps; gives the tokens of each row."""
    outputs: list[list[int]] = [[] for _ in range(rows)]
    for _ in range(steps):
        cache.advance(rows)
        for row in range(rows):
            outputs[row].append(int(cache.tokens[row, 0]))
    return outputs


def test_a_mask_holds_until_it_is_changed_or_lifted() -> None:
    runtime = IdleRuntime()
    cache = filled(runtime)
    cache.suppress(1, [7, 8, 9])
    cache.suppress(2, [EOS])
    for _ in range(2):
        cache.advance(3)
        assert runtime.masked() == [[], [7, 8, 9], [EOS]]
    cache.release(1)
    cache.advance(3)
    assert runtime.masked() == [[], [], [EOS]]
    cache.suppress(0, [4, 5])
    cache.advance(1)
    assert runtime.masked() == [[4, 5]]
    # More rows than the mask was written for.
    cache.advance(3)
    assert runtime.masked() == [[4, 5], [], [EOS]]
    cache.release(0)
    cache.release(2)
    cache.advance(1)
    assert runtime.masked() == [[]]
    cache.advance(3)
    assert runtime.masked() == [[], [], []]


def test_a_branch_copies_the_target_of_a_row(runtime: FakeRuntime) -> None:
    cache = SlotCache(runtime, 4)
    for row in range(4):
        cache.join(row, runtime.encode([SOURCES[0]]), 0)
    run(cache, 3, 4)
    cache.tokens[1, 0] = 40
    outputs = run(cache, 2, 2)
    assert outputs[0] != outputs[1]
    # They have read the begin token and two more alike.
    cache.branch(np.array([1, 1]), np.array([0, 3]), np.array([3, 3]))
    cache.tokens[[0, 3], 0] = cache.tokens[1, 0]
    first, second, _, last = run(cache, 3, 4)
    assert first == second == last


# The step of FakeRuntime checks the maximum lengths that it is given.


def test_maximum_lengths_are_found_again_when_shorter_rows_join(runtime: FakeRuntime) -> None:
    """The number of rows stays the same, so only the joining shows that they are others."""
    cache = filled(runtime)
    run(cache, 3, 3)
    inputs = runtime.inputs
    assert (inputs["max_length"][0], inputs["max_source_length"][0]) == (3, 6)
    for row in range(3):
        cache.join(row, runtime.encode([[30, EOS]]), 0)
    assert run(cache, 1, 3) == [[next_token([30, EOS], [BOS], may_end=True)[0]]] * 3
    assert (inputs["max_length"][0], inputs["max_source_length"][0]) == (2, 2)


def test_keys_and_values_have_the_type_of_the_graph() -> None:
    runtime = FakeRuntime()
    runtime.cache_type = np.dtype(np.int8)
    cache = SlotCache(runtime, 5)
    for name, array in runtime.inputs.items():
        is_cache = name.startswith(("self_", "cross_"))
        assert (array.dtype == np.int8) == is_cache, name
        if is_cache:
            assert runtime.outputs[f"new_{name}"] is array, name
    # Keys and values of the last source token stay float32: the operator takes them as new ones.
    assert cache.bytes == 5 * 2 * 2 * (MAX_TARGET + 1 + MAX_SOURCE + 4)


def test_bytes_count_keys_and_values() -> None:
    # 2 layers x key and value x (target and begin token, source, last source token) x 4 bytes
    per_slot = 2 * 2 * (MAX_TARGET + 1 + MAX_SOURCE + 1) * 4
    assert SlotCache(FakeRuntime(), 5).bytes == 5 * per_slot


def test_bytes_of_a_recurrent_decoder_do_not_grow_with_the_target() -> None:
    # 2 layers x (the state, key and value of source and last source token) x 4 bytes
    per_slot = 2 * (MAX_TARGET + 2 + 2 * (MAX_SOURCE + 1)) * 4
    limits = Limits(max_source_length=MAX_SOURCE, max_target_length=1000)
    manifest = make_manifest(architecture=RECURRENT, limits=limits)
    assert SlotCache(FakeRuntime(manifest), 5).bytes == 5 * per_slot


def test_clear_empties_every_buffer(runtime: FakeRuntime) -> None:
    used, new = runtime, FakeRuntime(runtime.manifest)
    cache = filled(used)
    run(cache, 4, 3)
    cache.clear()
    SlotCache(new, 3)
    for name, array in used.inputs.items():
        if name not in ("max_length", "max_source_length"):
            np.testing.assert_array_equal(array, new.inputs[name], err_msg=name)


FILLER = 2


def test_nothing_is_written_twice() -> None:
    masks = TokenMasks(slots=4, max_length=8, filler=FILLER)
    assert not masks.write(4)
    masks.put(1, [5])
    assert masks.write(2)
    assert not masks.write(2)
    assert not masks.write(1)
    assert not masks.put(1, [5])
    assert masks.write(3), "the third row has not been written"


def test_the_width_has_few_values() -> None:
    masks = TokenMasks(slots=2, max_length=8, filler=FILLER)
    widths = set()
    for count in range(1, 40):
        masks.put(0, list(range(count)))
        masks.write(1)
        assert masks.width >= count
        widths.add(masks.width)
    assert widths == {1, 2, 4, 8, 16, 32, 64}
