from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from tests.unit.server.engine.fake_runtime import (
    BOS,
    EOS,
    GROUP,
    MAX_SOURCE,
    MAX_TARGET,
    WORDS,
    FakeRuntime,
    make_manifest,
    next_word,
)

from seqserve_server.contract.manifest import Limits
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.step import StepSizes


class Sayer(FakeRuntime):
    """Says whatever it likes: for tests of what the graph is told."""

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        return SimpleNamespace(run=lambda rows, sizes: None)


# Of different length and different to the last word, which the cache keeps a second time.
SOURCES = [[7, 8, 9], [11, 12], [20, 21, 22, 23, 24, 25]]


def filled(runtime: FakeRuntime, slots: int = 3) -> SlotCache:
    cache = SlotCache(runtime, slots)
    for row, source in enumerate(SOURCES):
        memory = runtime.encode([source])
        cache.join(row, memory, 0)
    return cache


def words_of(cache: SlotCache, steps: int, rows: int) -> list[list[int]]:
    words: list[list[int]] = [[] for _ in range(rows)]
    for _ in range(steps):
        cache.advance(rows)
        for row in range(rows):
            words[row].append(int(cache.tokens[row, 0]))
    return words


def alone(source: list[int], steps: int) -> list[int]:
    words = [BOS]
    for _ in range(steps):
        words.append(next_word(source, words, may_end=True)[0])
    return words[1:]


def test_rows_read_nothing_of_each_other() -> None:
    cache = filled(FakeRuntime())
    assert words_of(cache, 5, 3) == [alone(source, 5) for source in SOURCES]
    assert cache.lengths.tolist() == [5, 5, 5]


def test_only_leading_rows_run() -> None:
    runtime = FakeRuntime()
    cache = filled(runtime)
    cache.advance(2)
    assert runtime.rows == [2]
    assert cache.lengths.tolist() == [1, 1, 0]
    assert cache.tokens[2, 0] == BOS


def test_moved_row_goes_on_where_it_was() -> None:
    cache = filled(FakeRuntime())
    words_of(cache, 3, 3)
    cache.move(2, 0)
    moved, stayed = words_of(cache, 4, 2)
    assert moved == alone(SOURCES[2], 7)[3:]
    assert stayed == alone(SOURCES[1], 7)[3:]


def request(cache: SlotCache, allowed: Sequence[int] = (), **changes: Any) -> None:
    """Asks the next steps for some outputs, and for nothing else."""
    nothing: dict[str, Any] = {"top_k": 0, "logits": False, "projects": True}
    cache.request(allowed=np.array(allowed, np.int64), **nothing | changes)


def masked(cache: SlotCache, rows: int) -> list[list[int]]:
    """The tokens of each row whose logits the graph masked in the last step."""
    inputs, _ = cache._buffers()
    width = cache._mask_width
    index = inputs["bias_tokens"][: rows * width].reshape(rows, width)
    value = inputs["bias_values"][: rows * width].reshape(rows, width)
    return [sorted(set(index[row][value[row] < -1e29].tolist())) for row in range(rows)]


def test_a_mask_holds_until_it_is_changed_or_lifted() -> None:
    cache = filled(Sayer())
    cache.suppress(1, [7, 8, 9])
    cache.suppress(2, [EOS])
    for _ in range(2):
        cache.advance(3)
        assert masked(cache, 3) == [[], [7, 8, 9], [EOS]]
    cache.release(1)
    cache.advance(3)
    assert masked(cache, 3) == [[], [], [EOS]]
    cache.suppress(0, [4, 5])
    cache.advance(1)
    assert masked(cache, 1) == [[4, 5]]
    # More rows than the mask was written for.
    cache.advance(3)
    assert masked(cache, 3) == [[4, 5], [], [EOS]]
    cache.release(0)
    cache.release(2)
    cache.advance(1)
    cache.advance(3)
    assert masked(cache, 3) == [[], [], []]


class Teller(FakeRuntime):
    """Gives each word that is allowed a score of its own in each row."""

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        def run(rows: int, sizes: StepSizes) -> None:
            self.allowed = inputs["allowed_tokens"][: sizes.allowed_groups].copy()  # [G, 4]
            told = np.arange(rows)[:, None, None] * 1000 + self.allowed  # [B, G, 4]
            outputs["allowed_logits"][: rows * sizes.allowed_groups] = told.reshape(-1, GROUP)

        return SimpleNamespace(run=run)


def test_allowed_tokens_are_laid_in_groups_until_others_are_requested() -> None:
    runtime = Teller()
    cache = filled(runtime)
    every = list(range(WORDS - 1, -1, -1))
    for words in ([9, 4, 7, 7, 30], every, [5]):
        request(cache, words)
        for rows in (3, 2):
            cache.advance(rows)
            assert runtime.allowed.shape == (-(-len(words) // GROUP), GROUP)
            assert runtime.allowed.ravel()[: len(words)].tolist() == words
            for row in range(rows):
                told = cache.allowed_logits(row).tolist()
                assert told == [row * 1000 + word for word in words]
    request(cache)
    cache.advance(3)
    assert runtime.allowed.shape == (0, GROUP)
    assert cache.allowed_logits(2).tolist() == []


def test_a_step_that_does_not_project_keeps_the_newest_tokens() -> None:
    cache = filled(FakeRuntime())
    request(cache, projects=False)
    for step in range(3):
        before = cache.tokens[:, 0].tolist()
        cache.advance(3)
        assert cache.tokens[:, 0].tolist() == before
        for row, source in enumerate(SOURCES):
            cache.tokens[row, 0] = alone(source, step + 1)[-1]
    request(cache)
    assert words_of(cache, 2, 3) == [alone(source, 5)[3:] for source in SOURCES]


def test_a_step_that_does_not_project_computes_nothing_over_the_vocabulary() -> None:
    asked: list[StepSizes] = []

    class Asked(FakeRuntime):
        def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
            return SimpleNamespace(run=lambda rows, sizes: asked.append(sizes))

    cache = filled(Asked())
    cache.suppress(0, [5, 6, 7])
    for projects in (True, False):
        request(cache, [5], top_k=8, logits=True, projects=projects)
        cache.advance(3)
    assert asked == [StepSizes(4, 8, WORDS, 1), StepSizes(1, 0, 0, 1, projects=False)]


def test_a_moved_row_keeps_its_own_mask() -> None:
    cache = filled(Sayer())
    cache.suppress(2, [7])
    cache.suppress(0, [8])
    cache.move(2, 0)
    cache.advance(3)
    assert masked(cache, 3) == [[7], [], []]


def test_branch_copies_what_rows_have_said() -> None:
    runtime = FakeRuntime()
    cache = SlotCache(runtime, 4)
    for row in range(4):
        cache.join(row, runtime.encode([SOURCES[0]]), 0)
    words_of(cache, 3, 4)
    cache.tokens[1, 0] = 40
    said = words_of(cache, 2, 2)
    assert said[0] != said[1]
    cache.branch([1, 1], [0, 3])
    cache.tokens[[0, 3], 0] = cache.tokens[1, 0]
    first, second, _, last = words_of(cache, 3, 4)
    assert first == second == last


def test_slot_is_used_again_from_its_beginning() -> None:
    runtime = FakeRuntime()
    cache = filled(runtime)
    words_of(cache, 6, 3)
    memory = runtime.encode([[30, EOS], [31, EOS]])
    cache.join(0, memory, 1)
    assert words_of(cache, 3, 1) == [alone([31, EOS], 3)]


def test_longest_target_and_source_fit() -> None:
    runtime = FakeRuntime()
    cache = SlotCache(runtime, 1)
    source = [5] * (MAX_SOURCE - 1) + [EOS]
    cache.join(0, runtime.encode([source]), 0)
    assert words_of(cache, MAX_TARGET, 1) == [alone(source, MAX_TARGET)]


def test_shortest_source_of_the_smallest_model_runs() -> None:
    manifest = make_manifest(limits=Limits(max_source_length=1, max_target_length=1))
    runtime = FakeRuntime(manifest)
    cache = SlotCache(runtime, 1)
    cache.join(0, runtime.encode([[EOS]]), 0)
    assert words_of(cache, 1, 1) == [alone([EOS], 1)]


def test_longest_are_found_again_when_a_row_gives_way_to_a_shorter_one() -> None:
    """As many rows run as before, so only that one joined tells that they are others."""
    runtime = FakeRuntime()
    cache = filled(runtime)
    words_of(cache, 3, 3)
    longest, source_longest = (
        cache._buffers()[0]["max_length"],
        cache._buffers()[0]["max_source_length"],
    )
    assert (longest[0], source_longest[0]) == (3, 6)
    # The longest source leaves; all targets are now shorter than the one that was there.
    for row in range(3):
        cache.join(row, runtime.encode([[30, EOS]]), 0)
    assert words_of(cache, 1, 3) == [alone([30, EOS], 1)] * 3
    assert (longest[0], source_longest[0]) == (2, 2)


def test_longest_are_found_again_when_a_longer_row_joins() -> None:
    runtime = FakeRuntime()
    cache = filled(runtime)
    words_of(cache, 2, 2)
    source = [5] * (MAX_SOURCE - 1) + [EOS]
    cache.join(1, runtime.encode([source]), 0)
    first, second = words_of(cache, 3, 2)
    assert first == alone(SOURCES[0], 5)[2:]
    assert second == alone(source, 3)


def test_longest_are_found_again_when_rows_are_moved() -> None:
    runtime = FakeRuntime()
    cache = filled(runtime)
    words_of(cache, 2, 2)
    # A row that has run no step yet, and whose source is the longest, over one that ran two.
    cache.move(2, 0)
    first, second = words_of(cache, 2, 2)
    assert first == alone(SOURCES[2], 2)
    assert second == alone(SOURCES[1], 4)[2:]


def test_caches_are_of_the_type_that_the_graph_keeps() -> None:
    runtime = FakeRuntime()
    runtime.cache_type = np.dtype(np.int8)
    cache = SlotCache(runtime, 5)
    inputs, outputs = cache._buffers()
    for name, array in inputs.items():
        kept = name.startswith(("self_", "cross_"))
        assert (array.dtype == np.int8) == kept, name
        if kept:
            assert outputs[f"new_{name}"] is array, name
    # The last source word is passed as the operator takes it: not rounded.
    assert cache.bytes == 5 * 2 * 2 * (MAX_TARGET + 1 + MAX_SOURCE + 4)


def test_bytes_are_those_of_keys_and_values() -> None:
    # 2 layers x key and value x (target and begin token, source, last source word) x 4 bytes
    per_slot = 2 * 2 * (MAX_TARGET + 1 + MAX_SOURCE + 1) * 4
    assert SlotCache(FakeRuntime(), 5).bytes == 5 * per_slot


def test_clear_leaves_nothing_behind() -> None:
    cache = filled(FakeRuntime())
    words_of(cache, 4, 3)
    cache.clear()
    empty = SlotCache(FakeRuntime(), 3)
    for name, array in cache._buffers()[0].items():
        if name not in ("max_length", "max_source_length"):
            np.testing.assert_array_equal(array, empty._buffers()[0][name], err_msg=name)
