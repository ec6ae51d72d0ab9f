"""Artifacts at fp16 on a GPU: a row of a batch decodes as alone, and as on the CPU.

To be run where there is one: ``make test-gpu``. Everything but CUDA's kernels is tested without, in
``tests/unit/server/engine/gpu/test_runtime.py``. No node falls back to the CPU: ONNX Runtime
refuses to record a graph that is not on CUDA as a whole, shapes apart.
"""

import random
from pathlib import Path

import pytest
from bench.requests import everyday
from tests.device_requests import WAYS, decode
from tests.gpu_artifacts import SHAPES, SHIPPED, SIZE, artifact

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import FILE, Tokenizer

pytestmark = pytest.mark.gpu

LONGEST, SLOTS = 30, 29
TOLERANCE = 2e-2
"""Of scores, in a batch and alone."""
CPU_TOLERANCE = 5e-2
"""Of scores of whole sentences, on CPU and GPU: halves are added in another order."""
RANDOM_TOLERANCE = 0.6
"""The same, of a dozen tokens of random weights, which are less certain of each."""


@pytest.fixture(params=SHAPES)
def folder(request: pytest.FixtureRequest) -> Path:
    return artifact(request.param)


@pytest.fixture
def shipped() -> tuple[Path, list[list[int]]]:
    """The shipped model at fp16, and everyday sentences."""
    folder = artifact(SHIPPED)
    tokenizer = Tokenizer.load(folder / FILE)
    return folder, [tokenizer.encode(line) for line in everyday()]


def on(provider: Provider, folder: Path) -> Runtime:
    return open_runtime(folder, Manifest.load(folder), provider, threads=1)


def score(answer: Finished) -> float:
    return answer.best.score or 0.0


def answered_alike(
    folder: Path, requests: list[tuple[list[int], DecodingOptions]], slots: int
) -> list[tuple[Finished, Finished]]:
    """Lists the answers of GPU and CPU that have equal tokens."""
    gpu, cpu = (
        decode(on(provider, folder), folder, requests, slots)
        for provider in (Provider.CUDA, Provider.CPU)
    )
    return [
        (mine, theirs)
        for mine, theirs in zip(gpu, cpu, strict=True)
        if mine.best.token_ids == theirs.best.token_ids
    ]


@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_tokens_and_scores_are_those_of_a_cpu(
    request: pytest.FixtureRequest, folder: Path, way: str
) -> None:
    if "post-norm" in request.node.callspec.id:
        reason = "seen on one H100: scores differ by more; CUDA's joined sums and norms add halves"
        request.applymarker(pytest.mark.xfail(reason=reason, strict=False))
    draw = random.Random(6)
    requests = [
        ([*(draw.randrange(4, SIZE) for _ in range(draw.randrange(1, LONGEST))), 2], WAYS[way])
        for _ in range(60)
    ]
    equal = answered_alike(folder, requests, SLOTS)
    # Tokens of random weights often nearly tie; with wrong attention next to none would be equal.
    assert len(equal) >= 0.75 * len(requests)
    for mine, theirs in equal:
        assert score(mine) == pytest.approx(score(theirs), abs=RANDOM_TOLERANCE)


def test_a_row_of_a_batch_decodes_as_alone(folder: Path) -> None:
    draw = random.Random(5)
    sources = [
        [*(draw.randrange(4, SIZE) for _ in range(draw.randrange(LONGEST))), 2] for _ in range(60)
    ]
    requests = [(source, WAYS[draw.choice(list(WAYS))]) for source in sources]
    runtime = on(Provider.CUDA, folder)
    together = decode(runtime, folder, requests, SLOTS)
    assert not runtime.unrecorded_steps
    for request, answer in zip(requests[:30], together, strict=False):
        [alone] = decode(runtime, folder, [request], SLOTS)
        assert alone.best.token_ids == answer.best.token_ids
        assert score(alone) == pytest.approx(score(answer), abs=TOLERANCE)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_a_gpu_translates_as_a_cpu(shipped: tuple[Path, list[list[int]]], beam_size: int) -> None:
    folder, sources = shipped
    options = DecodingOptions(max_decoding_length=100, beam_size=beam_size)
    requests = [(source, options) for source in sources]
    equal = answered_alike(folder, requests, 64)
    assert len(equal) >= 0.98 * len(sources)
    for mine, theirs in equal:
        assert score(mine) == pytest.approx(score(theirs), abs=CPU_TOLERANCE)
