import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.random_weights import random_model
from tests.reference import Reference
from tests.reference_log_probs import ReferenceLogProbs
from tests.rounding import assert_close, path_terms, rounding
from tests.unit.export.conftest import opened

from seqserve_export.calibration import calibrate
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import Calibration, quantize
from seqserve_model.config import (
    Activation,
    DecoderCell,
    Norm,
    NormPosition,
    PositionScheme,
    TransformerConfig,
)
from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.runtime import Runtime

Exported = Callable[[Transformer], Path]

VOCABULARY_SIZE, EOS = 384, 2

# Each scheme of positions, and beside it each other choice at least once.
SHAPES: dict[str, dict[str, Any]] = {
    "sinusoidal-post-norm": {"norm_position": NormPosition.POST, "decoder_layers": 2},
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
    "relative-gelu": {
        "positions": PositionScheme.RELATIVE,
        "activation": Activation.GELU,
        "relative_distance": 3,
        "decoder_layers": 2,
    },
    # As in umT5 and in BART: what only models made elsewhere have.
    "t5-wide-heads-no-biases-geglu": {
        "positions": PositionScheme.T5_LAYERS,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "norm": Norm.RMS,
        "heads": 3,
        "attention_width": 48,
        "decoder_heads": 2,
        "decoder_attention_width": 32,
        "projection_bias": False,
        "activation": Activation.GEGLU_TANH,
        "norm_epsilon": 1e-3,
        "tied_output": False,
    },
    "learned-embedding-norm-logits-bias": {
        "positions": PositionScheme.LEARNED,
        "norm_position": NormPosition.POST,
        "embedding_norm": True,
        "logits_bias": True,
        "activation": Activation.GELU_TANH,
        "heads": 3,
        "attention_width": 24,
        "decoder_heads": 2,
        "decoder_attention_width": 16,
        "decoder_feed_forward_width": 40,
        "shared_embeddings": False,
        "source_vocabulary_size": VOCABULARY_SIZE + 8,
    },
    # As in Marian's students.
    "ssru-marian-post-norm": {
        "decoder_cell": DecoderCell.SSRU,
        "positions": PositionScheme.MARIAN,
        "zero_start": True,
        "norm_position": NormPosition.POST,
        "norm_epsilon": 1e-9,
        "width": 32,
    },
    "ssru-relative": {
        "decoder_cell": DecoderCell.SSRU,
        "positions": PositionScheme.RELATIVE,
        "decoder_layers": 2,
    },
    "ssru-rotary-wide-heads": {
        "decoder_cell": DecoderCell.SSRU,
        "positions": PositionScheme.ROTARY,
        "heads": 3,
        "attention_width": 48,
        "projection_bias": False,
    },
    "relative-narrow-heads-geglu": {
        "positions": PositionScheme.RELATIVE,
        "activation": Activation.GEGLU,
        "relative_distance": 3,
        "attention_width": 8,
        "heads": 1,
        "decoder_heads": 2,
        "decoder_attention_width": 16,
        "logits_bias": True,
    },
}

# Each takes some seconds, so that all but one are left to those who compare.
QUICK = {"rotary-swish"}

# How most of them are rounded. Every combination of scales and caches is there. The other shapes
# repeat these choices, but for sinusoidal positions, which the tiny artifacts have, and for GEGLU,
# which is computed in floats.
ROUNDINGS = {
    "learned-rms-gelu-apart": (Scales.ROW, Caches.FLOAT),
    "rotary-swish": (Scales.STATIC, Caches.INT8),
    "alibi-swiglu": (Scales.STATIC, Caches.INT8),
    "relative-gelu": (Scales.ROW, Caches.INT8),
    "t5-wide-heads-no-biases-geglu": (Scales.STATIC, Caches.INT8),
    "learned-embedding-norm-logits-bias": (Scales.STATIC, Caches.FLOAT),
    "ssru-marian-post-norm": (Scales.STATIC, Caches.INT8),
    "ssru-relative": (Scales.ROW, Caches.FLOAT),
}


def make_model(**changes: Any) -> Transformer:
    shape: dict[str, Any] = {
        "vocabulary_size": VOCABULARY_SIZE,
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


def make_sources() -> list[list[int]]:
    draw = random.Random(5)
    return [
        [*(draw.randrange(4, VOCABULARY_SIZE) for _ in range(length)), EOS]
        for length in range(14)
        for _ in "ab"
    ]


OPTIONS = DecodingOptions(max_decoding_length=12, min_decoding_length=3)


def answers_of(folder: Path) -> list[Finished]:
    with LocalEngine(folder, slots=5) as offline:
        answers = offline.decode(make_sources(), OPTIONS)
    assert len({tuple(answer.best.token_ids) for answer in answers}) > 5, "all sources decode alike"
    assert any(len(set(answer.best.token_ids)) > 2 for answer in answers), "one token repeats"
    return answers


def assert_tokens_allowed_have_the_scores_of_all(folder: Path) -> None:
    runtime = opened(folder)
    sources = make_sources()[-5:]
    cache, memory = SlotCache(runtime, len(sources)), runtime.encode(sources)
    for row in range(len(sources)):
        cache.join(row, memory, row)
    draw = np.random.default_rng(9)
    for count in (VOCABULARY_SIZE, 70, 1):
        tokens = np.sort(draw.permutation(VOCABULARY_SIZE)[:count])
        for row in range(1, len(sources)):
            cache.limit(row, tokens)
        cache.set_outputs(top_k=0, logits=True)
        cache.advance(len(sources))
        for row in range(len(sources)):
            logits = cache.logits(row)
            assert len(set(logits.tolist())) > VOCABULARY_SIZE // 2, "all logits are equal"
            _, candidates = cache.candidates(row) or (tokens, logits[tokens])
            np.testing.assert_array_equal(candidates, logits[tokens])


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=name, marks=() if name in QUICK else pytest.mark.parity)
        for name, shape in SHAPES.items()
    ],
)
def test_exported_steps_equal_torch(shape: dict[str, Any], exported: Exported) -> None:
    model = make_model(**shape)
    folder, ties = exported(model), 0
    for source, answer in zip(make_sources(), answers_of(folder), strict=True):
        ought = Reference(ReferenceLogProbs(model, source, OPTIONS))
        if ought.margin < 1e-4:
            ties += 1
            continue
        assert answer.best.token_ids == ought.answer.best.token_ids
        assert answer.best.stop_reason is ought.answer.best.stop_reason
        assert answer.best.score == pytest.approx(ought.answer.best.score, abs=1e-4)
    assert ties <= 2, "hardly anything was compared"
    assert_tokens_allowed_have_the_scores_of_all(folder)


def assert_integers_equal(model: Transformer, folder: Path) -> None:
    same, differences = 0, []
    for source, answer in zip(make_sources(), answers_of(folder), strict=True):
        ought = Reference(ReferenceLogProbs(model, source, OPTIONS)).answer.best
        if answer.best.token_ids == ought.token_ids:
            assert answer.best.stop_reason is ought.stop_reason
            assert answer.best.score is not None
            differences.append(abs(answer.best.score - ought.score))
            same += 1
    # A sum that differs in its last bit may be rounded the other way, and all after it differs.
    assert same >= 24
    assert float(np.median(differences)) < 1e-4
    assert_tokens_allowed_have_the_scores_of_all(folder)


@pytest.mark.parametrize(
    ("fixture", "rounding"),
    [
        ("tiny_int8_artifact", (Scales.STATIC, Caches.FLOAT)),
        pytest.param(
            "tiny_row_scaled_artifact", (Scales.ROW, Caches.INT8), marks=pytest.mark.parity
        ),
    ],
    ids=["static", "row"],
)
def test_integers_of_the_tiny_artifacts_equal_torch(
    request: pytest.FixtureRequest,
    tiny_model: Transformer,
    tiny_calibration: Calibration,
    fixture: str,
    rounding: tuple[Scales, Caches],
) -> None:
    model = quantize(tiny_model, tiny_calibration, *rounding)
    assert_integers_equal(model, request.getfixturevalue(fixture))


@pytest.mark.parity
@pytest.mark.parametrize("name", ROUNDINGS)
def test_exported_integers_equal_torch(name: str, exported: Exported) -> None:
    """As the two above, for other shapes: a minute, so it runs with the longer tests."""
    whole = make_model(**SHAPES[name])
    model = quantize(whole, calibrate(whole, make_sources()), *ROUNDINGS[name])
    assert_integers_equal(model, exported(model))


@pytest.mark.parity
def test_last_word_of_a_rounded_memory_is_what_was_kept_of_it(
    tiny_row_scaled_artifact: Path, tiny_calibration: Calibration
) -> None:
    """It is written once more where it is: were it rounded otherwise, a row would change."""
    memory = opened(tiny_row_scaled_artifact).encode([[5, 6, 7, EOS], [8, EOS]])
    largest = tiny_calibration.caches["decoder_layers.0.cross_attention"]
    for kept, last, most in zip(memory.packed, memory.last, largest, strict=True):
        scale = most.numpy().reshape(-1) / 127  # [W]
        for source, token in enumerate((3, 5)):
            np.testing.assert_allclose(last[source, 0], kept[token] * scale, rtol=1e-6)
            np.testing.assert_array_equal(np.round(last[source, 0] / scale), kept[token])


SOURCE = torch.tensor([[5, 6, 7, 8, EOS], [9, 10, EOS, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 30, 40, 50, EOS], [1, 60, 70, EOS, 0]])
GIVEN = SOURCE.numpy(), LENGTHS.numpy().astype(np.int32), TARGET.numpy()


@pytest.fixture(scope="module", params=["tiny", "tiny_ssru"])
def model_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def scorer(request: pytest.FixtureRequest, model_name: str) -> Runtime:
    return opened(request.getfixturevalue(f"{model_name}_artifact"))


@pytest.fixture(scope="module")
def scored(scorer: Runtime) -> list[np.ndarray]:
    outputs = ["log_probabilities", "encoder_attention", "decoder_attention", "cross_attention"]
    return scorer.score(*GIVEN, outputs)


@pytest.fixture(scope="module")
def exact_model(request: pytest.FixtureRequest, model_name: str) -> Transformer:
    """The model in float64, so that only the graph's own rounding is left."""
    return copy.deepcopy(request.getfixturevalue(f"{model_name}_model")).double()


@torch.no_grad()
def test_scorer_log_probabilities_equal_torch(
    exact_model: Transformer, scored: list[np.ndarray]
) -> None:
    logits = exact_model(SOURCE, LENGTHS, TARGET[:, :-1])
    expected = logits.log_softmax(-1).gather(2, TARGET[:, 1:, None])[:, :, 0]
    assert scored[0].shape == (2, 4)
    bound = rounding(path_terms(exact_model.config), float(logits.abs().max()))
    assert_close(torch.from_numpy(scored[0]), expected, bound)


@torch.no_grad()
def test_scorer_attention_equals_torch(exact_model: Transformer, scored: list[np.ndarray]) -> None:
    record = AttentionRecord()
    memory = exact_model.encode(SOURCE, LENGTHS, record)
    exact_model.advance(TARGET[:, :-1], exact_model.begin(memory, LENGTHS), record)
    bound = rounding(path_terms(exact_model.config), 1.0)
    expected = (record.encoder, record.decoder, record.cross)
    assert scored[2].shape == (len(record.decoder), 2, 2, 4, 4)
    for weights, layers in zip(scored[1:], expected, strict=True):
        if not layers:
            continue  # the decoder is recurrent
        assert weights.shape == (len(layers), *layers[0].shape)
        assert_close(torch.from_numpy(weights), torch.stack(layers), bound)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=bound)
    assert (scored[3][:, 1, :, :, 3:] == 0).all(), "it attends to padding"


def test_one_output_is_computed_alone(scorer: Runtime, scored: list[np.ndarray]) -> None:
    [log_probabilities] = scorer.score(*GIVEN, ["log_probabilities"])
    np.testing.assert_array_equal(log_probabilities, scored[0])
