import random
from pathlib import Path

import numpy as np
import pytest
from tests.device_requests import WAYS, decode
from tests.unit.server.engine.gpu.host_device import on_device, on_host

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ProviderError
from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import Provider
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.gpu import step
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.gpu.step import DeviceStep, rounded_rows
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import StepSizes

SLOTS = 13
PLACES, LARGEST = ("lengths", "source_last_index"), ("max_length", "max_source_length")


def assert_alike(some: list[Finished], others: list[Finished]) -> None:
    """Checks that tokens are equal, and scores up to rounding: a sum and its norm are one node."""
    for a, b in zip(some, others, strict=True):
        for mine, theirs in zip(a.hypotheses, b.hypotheses, strict=True):
            assert mine.token_ids == theirs.token_ids
            assert mine.score == pytest.approx(theirs.score, abs=1e-4)
            listed = [step.token_ids for step in mine.top_tokens]
            assert listed == [step.token_ids for step in theirs.top_tokens]


class Caches:
    """A cache of a device and one of the host, which do the same."""

    def __init__(self, folder: Path, slots: int) -> None:
        self.runtime, self.device = on_device(folder)
        self.runtimes = self.runtime, on_host(folder)
        self.caches = [SlotCache(runtime, slots) for runtime in self.runtimes]

    def join(self, row: int, candidates: Array | None = None) -> None:
        for cache, runtime in zip(self.caches, self.runtimes, strict=True):
            cache.join(row, runtime.encode([[5, 6, 2]]), 0)
            cache.limit(row, candidates)

    def advance(self, rows: int = 1, *, with_scores: bool = True) -> None:
        for cache in self.caches:
            cache.advance(rows, return_logprobs=with_scores)
        mine, theirs = self.caches
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)


@pytest.fixture(params=["tiny_artifact", "tiny_ssru_artifact"])
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.getfixturevalue(request.param)
    return path


@pytest.fixture
def sources(folder: Path) -> list[list[int]]:
    manifest = Manifest.load(folder)
    draw = random.Random(5)
    size, longest = manifest.architecture.vocabulary_size, manifest.limits.max_source_length
    return [
        [*(draw.randrange(4, size) for _ in range(draw.randrange(longest))), manifest.tokens.eos]
        for _ in range(24)
    ]


@pytest.fixture
def padded_rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each step runs more than were asked for; garbage is left in those."""
    run, padded = DeviceStep.run, list[int]()

    def run_beside_garbage(self: DeviceStep, rows: int, sizes: StepSizes) -> None:
        padded.append(rounded_rows(rows, SLOTS) - rows)
        for name, array in self._inputs.items():
            if name.startswith(("self_", "cross_", "last_", "cell_")):
                array[rows:] = np.nan
        run(self, rows, sizes)
        # Their lengths stay in bounds.
        for name, largest in zip(PLACES, LARGEST, strict=True):
            sent = self._copies_on_device[self._inputs[name].ctypes.data]
            assert sent.max() < self._inputs[largest][0]

    monkeypatch.setattr(DeviceStep, "run", run_beside_garbage)
    monkeypatch.setattr(step, "_MIN_BOUND_LENGTH", 2)
    return padded


@pytest.mark.parametrize("way", WAYS)
def test_a_device_gives_the_answers_of_the_host(
    folder: Path, sources: list[list[int]], padded_rows: list[int], way: str
) -> None:
    """Rows join, move and leave all the time, because there are more sources than slots."""
    requests = [(source, WAYS[way]) for source in sources]
    runtime, _ = on_device(folder)
    answers = decode(runtime, folder, requests, SLOTS)
    assert_alike(answers, decode(on_host(folder), folder, requests, SLOTS))
    assert way != "greedy" or max(padded_rows) > 0, "no step has rows of garbage"


def test_keys_and_values_stay_on_the_device(tiny_artifact: Path) -> None:
    runtime, device = on_device(tiny_artifact)
    _, sources = runtime.decoder_state(1)
    requests = [([5, 6, 7, 2], WAYS["without scores"])]
    decode(runtime, tiny_artifact, requests, 1)
    before = device.uploaded, device.downloaded
    [answer] = decode(runtime, tiny_artifact, requests, 1)
    steps = len(answer.best.token_ids)
    # Each step a token; to the device also a length, the place of the last source token, and what
    # is sent once.
    assert device.downloaded - before[1] == 8 * steps
    assert device.uploaded - before[0] < 64 * steps < sources.layers.nbytes


def test_a_device_has_room_for_the_logits_that_steps_give_not_for_all_that_they_could(
    tiny_artifact: Path,
) -> None:
    """Each row could have candidates of its own: for 512 rows their logits would take 25 MB."""
    caches = Caches(tiny_artifact, 512)
    before = caches.device.allocated
    for row, count in enumerate((8, 40, 70)):
        caches.join(row, np.arange(count) + 4)
        caches.advance(row + 1)
    assert caches.device.allocated - before < 16 << 20


def test_weights_are_on_the_device_once(tiny_artifact: Path) -> None:
    _, device = on_device(tiny_artifact)
    assert device.allocated == (tiny_artifact / "weights.bin").stat().st_size


def test_given_targets_have_the_scores_and_the_attention_of_the_host(tiny_artifact: Path) -> None:
    runtime, device = on_device(tiny_artifact)
    host = on_host(tiny_artifact)
    outputs = ["log_probabilities", "cross_attention"]
    source, target = np.array([[5, 6, 7, 2]]), np.array([[1, 9, 8, 2]])
    inputs = (source, np.array([4], np.int32), target, outputs)
    for mine, theirs in zip(runtime.score(*inputs), host.score(*inputs), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)
    assert not device.recording.locked()


def test_it_tells_of_the_memory_of_the_device(tiny_artifact: Path) -> None:
    runtime, device = on_device(tiny_artifact)
    assert runtime.gpu_memory() == device.memory()


def test_it_is_usable_until_the_device_is_broken(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("cudaErrorIllegalAddress")

    runtime, device = on_device(tiny_artifact)
    assert runtime.is_usable()
    monkeypatch.setattr(device, "wait", fail)
    assert not runtime.is_usable()


def test_all_sizes_of_steps_are_run_beforehand(tiny_artifact: Path) -> None:
    """Whatever number of rows runs, a step of its size was recorded."""
    runtime, _ = on_device(tiny_artifact)
    steps = runtime.warm_up_steps(40)
    assert steps == [(rows, True) for rows in (1, 2, 4, 8, 12, 16, 24, 32, 40)]
    assert {rounded_rows(rows, 40) for rows in range(1, 41)} == {rows for rows, _ in steps}


@pytest.mark.parametrize("slots", [1, 5, 64, 100, 1024])
def test_rows_are_rounded_up_to_few_sizes_within_the_slots(slots: int) -> None:
    sizes = [rounded_rows(rows, slots) for rows in range(1, slots + 1)]
    assert all(rows <= size <= slots for rows, size in enumerate(sizes, 1))
    assert all(size <= max(2 * rows - 1, 1) for rows, size in enumerate(sizes, 1))
    assert all(2 * size <= 3 * rows for rows, size in enumerate(sizes, 1) if rows > 8)
    assert len(set(sizes)) <= 4 + 2 * max(slots.bit_length() - 3, 0)


def test_a_step_with_scores_stands_in_until_there_is_time_to_record_another(
    tiny_artifact: Path,
) -> None:
    caches, recording = Caches(tiny_artifact, 1), FailsToRecord(0)
    caches.device.recording = recording  # type: ignore[assignment]

    def advance_twice(*, with_scores: bool) -> None:
        caches.join(0)
        for _ in range(2):
            caches.advance(with_scores=with_scores)

    advance_twice(with_scores=True)
    advance_twice(with_scores=False)
    assert recording.taken == 1
    for _ in range(2):
        caches.runtime.use_idle_time()
        assert recording.taken == 2
        advance_twice(with_scores=False)


def test_only_artifacts_of_halves_run_on_cuda(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqserve_server.engine.gpu.runtime.check_provider", lambda _: None)
    manifest = Manifest.load(tiny_artifact)
    with pytest.raises(ProviderError, match=r"at fp32, .*--precision fp16.*--provider cpu"):
        open_runtime(tiny_artifact, manifest, Provider.CUDA, threads=1)


class FailsToRecord:
    """A lock that fails when it is taken, some times, as the recording of a step does."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        if self.taken <= self.failures:
            raise RuntimeError("CUDA failure 901: operation failed due to a previous error")

    def __exit__(self, *_: object) -> None:
        """Holds nothing."""


@pytest.mark.parametrize(("failures", "attempts", "unrecorded"), [(0, 1, 0), (1, 2, 0), (2, 2, 1)])
def test_a_step_that_cannot_be_recorded_is_tried_again_and_then_runs_without(
    tiny_artifact: Path, failures: int, attempts: int, unrecorded: int
) -> None:
    caches, recording = Caches(tiny_artifact, 1), FailsToRecord(failures)
    caches.device.recording = recording  # type: ignore[assignment]
    caches.join(0)
    for _ in range(3):
        caches.advance()
    assert recording.taken == attempts
    assert caches.runtime.unrecorded_steps == unrecorded
