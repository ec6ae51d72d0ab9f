import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import Provider
from seqserve_server.engine import runtime as module
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.drafts import draft_pass
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.step import DraftReader

SOURCE = [9, 40, 41, 60, 2]


def opened(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    monkeypatch.setattr(module, "_MIN_DRAFTED_BYTES", 0)
    return Runtime(folder, Manifest.load(folder), Provider.CPU, threads=1)


@pytest.mark.parametrize("artifact", ["tiny_artifact", "tiny_int8_artifact"])
@pytest.mark.parametrize("read", [1, 4])
def test_pass_gives_the_bits_of_steps(
    artifact: str, read: int, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = opened(request.getfixturevalue(artifact), monkeypatch)
    assert runtime.draft_reader is not None
    runtime.draft_reader.open()
    cache = SlotCache(runtime, 3)
    steps: list[tuple[int, float]] = []
    for row in range(3):
        cache.join(row, runtime.encode([SOURCE]), 0)
    for _ in range(read + 9):
        cache.advance(2)
        steps.append((int(cache.tokens[1, 0]), float(cache.log_probabilities[1])))
    for _ in range(read):
        cache.advance(3)
    entries = [array[1].copy() for array in cache._target.arrays.values()]
    cache.lengths[2] = read
    cache.tokens[2] = steps[read - 1][0]
    best, scores = draft_pass(
        runtime.draft_reader, cache, 2, [token for token, _ in steps[read - 1 : read + 8]]
    ) or ([], [])
    assert list(zip(best, scores, strict=True)) == steps[read : read + 9]
    for mine, its in zip(cache._target.arrays.values(), entries, strict=True):
        assert np.array_equal(mine[2, :, : read + 9], its[:, : read + 9])


@pytest.mark.parametrize(
    "artifact", ["tiny_ssru_artifact", "tiny_row_scaled_artifact", "tiny_fp16_artifact"]
)
def test_other_decoders_read_no_drafts(
    artifact: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened(request.getfixturevalue(artifact), monkeypatch).draft_reader is None


def test_small_models_read_no_drafts(tiny_runtime: Runtime) -> None:
    assert tiny_runtime.draft_reader is None


def test_graph_is_opened_once_while_others_go_on() -> None:
    may_open, has_opened = threading.Event(), threading.Event()
    session = _Session()

    def open_graph() -> Any:
        may_open.wait()
        has_opened.set()
        return session

    reader = DraftReader(open_graph)
    inputs = {"tokens": np.zeros((1, 1), np.int64), "self_key_0": np.zeros((1, 1, 1, 1))}
    assert [reader.read(inputs) for _ in range(3)] == [None] * 3
    assert not has_opened.is_set()
    may_open.set()
    for thread in threading.enumerate():
        if thread.name == "draft-reader":
            thread.join()
    assert reader.read(inputs) == ["next_tokens", "log_probabilities", "read_self_key_0"]


def test_graph_that_cannot_be_opened_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    def open_graph() -> Any:
        raise ArtifactError("weights.bin: the file is damaged")

    reader = DraftReader(open_graph)
    reader.open()
    assert "drafts are ignored" in caplog.text and "damaged" in caplog.text


class _Session:
    def run(self, names: list[str], inputs: dict[str, Any]) -> list[str]:
        return names
