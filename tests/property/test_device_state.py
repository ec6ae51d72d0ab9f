"""Rows that join, move, branch and step: on a device as on the host, in whatever order.

The device is the host's memory. What it has freed, and what is in rows that do not run, is NaN.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.examples import examples
from tests.exported import Exporter
from tests.step_graphs import with_gathering_steps
from tests.unit.server.engine.gpu.host_device import HostDevice

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.gpu import step
from seqserve_server.engine.gpu.runtime import DeviceRuntime
from seqserve_server.engine.gpu.step import DeviceStep
from seqserve_server.engine.packing import Array
from seqserve_server.engine.runtime import Runtime

EOS, VOCABULARY_SIZE, SLOTS = 2, 384, 11
STATES = ("self_", "cross_", "last_", "cell_")
ALIKE = 1e-4
"""A sum and its norm are one node on a device."""


class WatchedRuntime(DeviceRuntime):
    """Knows the buffers of its last cache."""

    def step(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> DeviceStep:
        self.kept = [inputs[name] for name in inputs if name.startswith(STATES)]
        return super().step(inputs, outputs)


@dataclass
class Row:
    source: int
    tokens: list[int] = field(default_factory=list)


class Pair:
    """Two caches that do the same."""

    def __init__(self, host: Runtime, device: WatchedRuntime) -> None:
        self.runtimes = host, device
        self.caches = self.host, self.device = SlotCache(host, SLOTS), SlotCache(device, SLOTS)
        self.rows: list[Row] = []
        self.sources = 0
        self.holes: set[int] = set()

    def both(self, do: Callable[[SlotCache], object]) -> None:
        for cache in self.caches:
            do(cache)

    def join(self, sources: list[list[int]], order: list[int], start: int | None) -> None:
        """Gives encoded sources to holes, and to rows behind the last one."""
        encoded = [runtime.encode(sources) for runtime in self.runtimes]
        for index in order:
            if len(self.rows) == SLOTS and not self.holes:
                return
            row = self.holes.pop() if self.holes else len(self.rows)
            self.rows[row : row + 1] = [Row(self.sources + index % len(sources))]
            for cache, cross_kv in zip(self.caches, encoded, strict=True):
                cache.join(row, cross_kv, index % len(sources), start)
        self.sources += len(sources)

    def leave(self, row: int) -> None:
        if not self.rows:
            return
        row %= len(self.rows)
        self.both(lambda cache: cache.release(row))
        self.holes.add(row)

    def compact(self) -> None:
        for row in sorted(self.holes, reverse=True):
            last = len(self.rows) - 1
            if row != last:
                self.both(lambda cache: cache.move(last, row))  # noqa: B023
                self.rows[row] = self.rows[last]
            self.rows.pop()
        self.holes.clear()

    def branch(self, source: int) -> None:
        self.compact()
        if not self.rows:
            return
        source %= len(self.rows)
        copied = self.rows[source]
        targets = [
            row
            for row, other in enumerate(self.rows)
            if other is not copied and other.source == copied.source
        ]
        shared = [alike(copied.tokens, self.rows[row].tokens) for row in targets]
        arrays = np.full(len(targets), source), np.array(targets, int), np.array(shared, int)
        self.both(lambda cache: cache.branch(*arrays))
        for row in targets:
            self.rows[row].tokens[:] = copied.tokens

    def limit(self, row: int, count: int) -> None:
        if row < len(self.rows) and row not in self.holes:
            tokens = np.arange(count) + EOS if count else None
            self.both(lambda cache: cache.limit(row, tokens))

    def suppress(self, row: int, tokens: list[int]) -> None:
        if row < len(self.rows) and row not in self.holes:
            self.both(lambda cache: cache.suppress(row, tokens))

    def request(self, top_k: int) -> None:
        self.both(lambda cache: cache.set_outputs(top_k=top_k, logits=False))

    def step(self, seed: int, with_scores: bool) -> None:
        """Steps all rows; whatever the step chooses, both read the same token next."""
        self.compact()
        rows = len(self.rows)
        if not rows:
            return
        for row, read in enumerate(self.rows):
            read.tokens.append(int(self.host.tokens[row, 0]))
        for array in self.runtimes[1].kept:
            array[rows:] = np.nan
        self.both(lambda cache: cache.advance(rows, return_logprobs=with_scores))
        if with_scores:
            mine, theirs = (cache.log_probabilities[:rows] for cache in self.caches)
            np.testing.assert_allclose(mine, theirs, atol=ALIKE)
            if self.host.top_k:
                mine, theirs = (cache.top_tokens(np.arange(rows))[1] for cache in self.caches)
                np.testing.assert_allclose(mine, theirs, atol=ALIKE)
        chosen = (np.arange(rows)[:, None] * 7 + seed) % (VOCABULARY_SIZE - 4) + 4
        for cache in self.caches:
            cache.tokens[:rows] = chosen


def alike(some: list[int], others: list[int]) -> int:
    pairs = zip(some, others, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(some), len(others)))


tokens = st.integers(4, VOCABULARY_SIZE - 1)
rows = st.integers(0, SLOTS - 1)
sources = st.lists(
    st.lists(tokens, max_size=9).map(lambda ids: [*ids, EOS]), min_size=1, max_size=3
)
steps = st.tuples(st.just("step"), st.integers(0, 300), st.booleans())
joins = st.tuples(
    st.just("join"),
    sources,
    st.lists(st.integers(0, 2), min_size=1, max_size=6),
    st.none() | tokens,
)
others = st.one_of(
    joins,
    st.tuples(st.just("leave"), rows),
    st.tuples(st.just("branch"), rows),
    st.tuples(st.just("limit"), rows, st.sampled_from([0, 5, 60, 300])),
    st.tuples(st.just("suppress"), rows, st.lists(tokens, max_size=3, unique=True).map(sorted)),
    st.tuples(st.just("request"), st.sampled_from([0, 2, 5])),
)
works = st.lists(steps | others | others, min_size=3, max_size=20)


@pytest.fixture(scope="module", params=["fp32", "ssru"])
def runtimes(
    request: pytest.FixtureRequest, exporter: Exporter, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Runtime, WatchedRuntime]:
    folder = with_gathering_steps(
        exporter.repository(request.param) / "tiny" / "1",
        exporter.traced_decoder(request.param),
        tmp_path_factory.mktemp("device") / "1",
    )
    manifest = Manifest.load(folder)
    host = Runtime(folder, manifest, Provider.CPU, threads=1)
    return host, WatchedRuntime(folder, manifest, Provider.CPU, HostDevice())


@examples(120)
@given(first=joins, works=works)
def test_a_device_keeps_of_rows_what_the_host_does(
    runtimes: tuple[Runtime, WatchedRuntime],
    first: tuple[object, ...],
    works: list[tuple[object, ...]],
) -> None:
    pair = Pair(*runtimes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step, "_MIN_BOUND_LENGTH", 2)
        for name, *arguments in (first, *works, ("step", 0, True)):
            getattr(pair, str(name))(*arguments)
