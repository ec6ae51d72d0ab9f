from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.random_weights import random_model
from tests.reference import decode

from seqserve_export import program
from seqserve_export.artifact import Description, write_artifact
from seqserve_model.config import (
    Activation,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.engine.request import DecodingOptions
from seqserve_server.offline import Offline
from seqserve_server.runtime import Runtime
from seqserve_server.tokenizer import Tokenizer

WORDS, EOS = 384, 2

# Each scheme of positions, and beside it each other choice at least once.
SHAPES: dict[str, dict[str, Any]] = {
    "sinusoidal-post-norm": {
        "norm_position": NormPosition.POST,
        "decoder_layers": 2,
    },
    "learned-rms-gelu-apart": {
        "positions": PositionScheme.LEARNED,
        "norm": Norm.RMS,
        "activation": Activation.GELU,
        "shared_embeddings": False,
        "tied_output": False,
        "scaled_embeddings": False,
    },
    "rotary-swish": {
        "positions": PositionScheme.ROTARY,
        "width": 32,
        "activation": Activation.SWISH,
        "decoder_layers": 2,
    },
    "t5-rms-swiglu-post-norm": {
        "positions": PositionScheme.T5,
        "norm": Norm.RMS,
        "activation": Activation.SWIGLU,
        "norm_position": NormPosition.POST,
    },
    "alibi-swiglu": {"positions": PositionScheme.ALIBI, "activation": Activation.SWIGLU},
}


def make_model(**changes: Any) -> Transformer:
    shape: dict[str, Any] = {
        "vocabulary_size": WORDS,
        "width": 16,
        "heads": 2,
        "feed_forward_width": 24,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "dropout": 0.0,
        # Small, so that short targets reach the buckets of long distances.
        "relative_buckets": 8,
        "relative_bucket_distance": 10,
        "max_source_length": 14,
        "max_target_length": 12,
    }
    return random_model(TransformerConfig(**shape | changes))


@pytest.fixture
def without_teacher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The teacher-forced graph takes most of the time and is the same module for all."""
    programs = program.programs

    def some(model: Transformer) -> dict[str, program.Program]:
        graphs = programs(model)
        del graphs["teacher.onnx"]
        return graphs

    monkeypatch.setattr(program, "programs", some)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.usefixtures("without_teacher")
def test_exported_steps_equal_torch(
    shape: dict[str, Any],
    tmp_path: Path,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
) -> None:
    model = make_model(**shape)
    folder = write_artifact(model, tiny_tokenizer, tmp_path, tiny_description, verify=None)
    draw = random.Random(5)
    sources = [
        [*(draw.randrange(4, WORDS) for _ in range(length)), EOS]
        for length in range(14)
        for _ in "ab"
    ]
    options = DecodingOptions(max_decoding_length=12, min_decoding_length=3)
    with Offline(folder, slots=5) as offline:
        answers = offline.decode(sources, options)
    assert len({tuple(answer.token_ids) for answer in answers}) > 5, "all sources decode alike"
    assert any(len(set(answer.token_ids)) > 3 for answer in answers), "targets repeat one word"
    ties = 0
    for source, answer in zip(sources, answers, strict=True):
        ought = decode(model, source, options)
        if ought.margin < 1e-4:
            ties += 1
            continue
        assert answer.token_ids == ought.token_ids
        assert answer.stop_reason is ought.stop_reason
        assert answer.score == pytest.approx(ought.score, abs=1e-4)
    assert ties <= 2, "hardly anything was compared"


SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 30, 40, 50, EOS], [1, 60, 70, EOS, 0]])


@pytest.fixture(scope="module")
def taught(tiny_runtime: Runtime) -> list[np.ndarray]:
    outputs = ["log_probabilities", "encoder_attention", "decoder_attention", "cross_attention"]
    lengths = LENGTHS.numpy().astype(np.int32)
    return tiny_runtime.teach(SOURCE.numpy(), lengths, TARGET.numpy(), outputs)


@torch.no_grad()
def test_teacher_scores_equal_torch(tiny_model: Transformer, taught: list[np.ndarray]) -> None:
    logits = tiny_model(SOURCE, LENGTHS, TARGET[:, :-1])
    ours = logits.log_softmax(-1).gather(2, TARGET[:, 1:, None])[:, :, 0].numpy()
    assert taught[0].shape == (2, 4)
    np.testing.assert_allclose(taught[0], ours, atol=1e-4)


@torch.no_grad()
def test_teacher_attention_equals_torch(tiny_model: Transformer, taught: list[np.ndarray]) -> None:
    record = AttentionRecord()
    memory = tiny_model.encode(SOURCE, LENGTHS, record)
    tiny_model.advance(TARGET[:, :-1], tiny_model.begin(memory, LENGTHS), record)
    for found, ours in zip(taught[1:], (record.encoder, record.decoder, record.cross), strict=True):
        assert found.shape == (len(ours), *ours[0].shape)
        np.testing.assert_allclose(found, torch.stack(ours).numpy(), atol=1e-5)
        np.testing.assert_allclose(found.sum(-1), 1.0, atol=1e-5)
    assert (taught[3][:, 1, :, :, 3:] == 0).all(), "it attends to padding"


def test_one_output_is_computed_alone(tiny_runtime: Runtime, taught: list[np.ndarray]) -> None:
    [scores] = tiny_runtime.teach(
        SOURCE.numpy(), LENGTHS.numpy().astype(np.int32), TARGET.numpy(), ["log_probabilities"]
    )
    np.testing.assert_array_equal(scores, taught[0])


@pytest.mark.parametrize("words", [1, 7, 24, 128, 384, 509, 1021, 6144, 32_000])
def test_argmax_block_divides_the_vocabulary(words: int) -> None:
    from seqserve_export.operators import block_size

    size = block_size(words)
    assert words % size == 0
    assert 1 <= size <= 512
