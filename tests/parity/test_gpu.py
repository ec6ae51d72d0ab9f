"""Artifacts at fp16 on a GPU: a row of a batch decodes as alone, and as on the CPU.

To be run where there is one: ``make test-gpu``. Everything but CUDA's kernels is tested without, in
``tests/unit/server/engine/gpu/test_runtime.py``. No node falls back to the CPU: ONNX Runtime
refuses to record a graph that is not on CUDA as a whole, shapes apart.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.models import numbered_words, write_unproven
from bench.requests import everyday
from tests.device_requests import WAYS, decode
from tests.random_weights import random_model

from seqserve_export.halving import halve
from seqserve_export.restore import restore
from seqserve_model.config import DecoderCell, NormPosition, PositionScheme, TransformerConfig
from seqserve_server.contract.events import Finished
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.provider import Provider
from seqserve_server.contract.tokenizer import FILE, Tokenizer
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.runtime import Runtime

pytestmark = pytest.mark.gpu

SIZE, LONGEST, SLOTS = 400, 30, 29
TOLERANCE = 2e-2
"""Of scores, in a batch and alone."""
CPU_TOLERANCE = 5e-2
"""Of scores of whole sentences, on CPU and GPU: halves are added in another order."""

SHAPES: dict[str, dict[str, Any]] = {
    "sinusoidal positions": {},
    "learned positions": {"positions": PositionScheme.LEARNED},
    "rotary positions": {"positions": PositionScheme.ROTARY},
    "post-norm": {"norm_position": NormPosition.POST},
    "recurrent decoder": {"decoder_cell": DecoderCell.SSRU},
}


@pytest.fixture(scope="module", params=SHAPES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = TransformerConfig(
        vocabulary_size=SIZE,
        width=64,
        heads=4,
        feed_forward_width=128,
        encoder_layers=2,
        decoder_layers=2,
        dropout=0.0,
        max_source_length=64,
        max_target_length=64,
        **SHAPES[request.param],
    )
    repository = tmp_path_factory.mktemp("gpu")
    tokenizer = Tokenizer(numbered_words(SIZE))
    return write_unproven(halve(random_model(config)), repository, "tiny", tokenizer)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[list[int]]]]:
    """The shipped model at fp16, and everyday sentences."""
    newest = max(Path("models/en-de").iterdir(), key=lambda folder: int(folder.name))
    tokenizer = Tokenizer.load(newest / FILE)
    repository = tmp_path_factory.mktemp("shipped")
    folder = write_unproven(halve(restore(newest)), repository, "en-de", tokenizer)
    yield folder, [tokenizer.encode(line) for line in everyday()]


def on(provider: Provider, folder: Path) -> Runtime:
    return open_runtime(folder, Manifest.load(folder), provider, threads=1)


def score(answer: Finished) -> float:
    return answer.best.score or 0.0


def test_a_row_of_a_batch_decodes_as_alone(folder: Path) -> None:
    draw = random.Random(5)
    sources = [
        [*(draw.randrange(4, SIZE) for _ in range(draw.randrange(LONGEST))), 2] for _ in range(60)
    ]
    requests = [(source, WAYS[draw.choice(list(WAYS))]) for source in sources]
    runtime = on(Provider.CUDA, folder)
    together = decode(runtime, folder, requests, SLOTS)
    for request, answer in zip(requests[:30], together, strict=False):
        [alone] = decode(runtime, folder, [request], SLOTS)
        assert alone.best.token_ids == answer.best.token_ids
        assert score(alone) == pytest.approx(score(answer), abs=TOLERANCE)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_a_gpu_translates_as_a_cpu(shipped: tuple[Path, list[list[int]]], beam_size: int) -> None:
    folder, sources = shipped
    options = DecodingOptions(max_decoding_length=100, beam_size=beam_size)
    requests = [(source, options) for source in sources]
    gpu, cpu = (
        decode(on(provider, folder), folder, requests, 64)
        for provider in (Provider.CUDA, Provider.CPU)
    )
    equal = [
        (mine, theirs)
        for mine, theirs in zip(gpu, cpu, strict=True)
        if mine.best.token_ids == theirs.best.token_ids
    ]
    assert len(equal) >= 0.98 * len(sources)
    for mine, theirs in equal:
        assert score(mine) == pytest.approx(score(theirs), abs=CPU_TOLERANCE)
