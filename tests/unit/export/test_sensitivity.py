from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from tests.tiny import SENTENCES

from seqserve_export.forced_decoding import TargetScores, score_targets
from seqserve_export.options import Caches, Scales
from seqserve_export.quantization import Calibration, quantize
from seqserve_export.tolerance import mean_difference, sensitivity
from seqserve_model.transformer import Transformer
from seqserve_server.text.tokenizer import Tokenizer

SOURCES = [[5, 6, 7, 8, 2], [9, 10, 2], [11, 5, 12, 2]]
TARGETS = [[6, 7, 2], [8, 2], [9, 10, 11, 2]]


def measured(model: Transformer) -> float:
    return sensitivity(model, SOURCES, TARGETS, score_targets(model, SOURCES, TARGETS))


def test_whole_model_moves_by_little(tiny_model: Transformer) -> None:
    assert 0 < measured(tiny_model) < 1e-5


def test_rounding_amplifies(
    tiny_model: Transformer, tiny_calibration: Calibration, tiny_tokenizer: Tokenizer
) -> None:
    """Few values fall to the next step, but that one is wide."""
    rounded = quantize(tiny_model, tiny_calibration, Scales.STATIC, Caches.INT8)
    sources = [tiny_tokenizer.encode(sentence) for sentence in SENTENCES[:45]]
    moved = [
        sensitivity(model, sources, sources, score_targets(model, sources, sources))
        for model in (tiny_model, rounded)
    ]
    assert moved[1] > 2 * moved[0] > 0


def test_model_is_as_before_and_the_measure_repeats(tiny_model: Transformer) -> None:
    before = score_targets(tiny_model, SOURCES, TARGETS)
    assert measured(tiny_model) == measured(tiny_model)
    after = score_targets(tiny_model, SOURCES, TARGETS)
    for first, second in zip(before, after, strict=True):
        np.testing.assert_array_equal(first.log_probabilities, second.log_probabilities)


@pytest.mark.parametrize("name", ["source_embedding", "target_embedding"])
def test_each_embedding_counts(tiny_model: Transformer, name: str) -> None:
    config = dataclasses.replace(tiny_model.config, shared_embeddings=False, tied_output=False)
    torch.manual_seed(1)
    model = Transformer(config).eval()
    with torch.no_grad():
        getattr(model, name).weight.zero_()
    assert measured(model) > 0, "only the embedding that is zero was changed"


def test_mean_is_over_tokens_not_sentences() -> None:
    scores = [target_scores(np.zeros(3)), target_scores(np.zeros(1))]
    assert mean_difference([np.ones(3), np.full(1, -5.0)], scores) == 2.0


def target_scores(log_probabilities: np.ndarray) -> TargetScores:
    return TargetScores(log_probabilities, np.zeros(0), np.zeros(0))
