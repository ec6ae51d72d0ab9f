"""Scoring known targets: greedy ones are best everywhere, in batches as alone."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.random_weights import random_model
from tests.rounding import assert_same

from seqserve_model import decoding
from seqserve_model.config import TransformerConfig
from seqserve_model.decoding import agreement, greedy_in_batches, score_targets
from seqserve_model.transformer import Transformer

CONFIG = TransformerConfig(
    vocabulary_size=40,
    width=8,
    heads=2,
    feed_forward_width=12,
    encoder_layers=1,
    decoder_layers=1,
    dropout=0.0,
    max_source_length=12,
    max_target_length=10,
)
SOURCES = [[token, 7, *range(8, 8 + token % 5), CONFIG.eos_id] for token in range(4, 30)]


@pytest.fixture(scope="module")
def model() -> Transformer:
    return random_model(dataclasses.replace(CONFIG, logits_bias=True), seed=28).double()


@pytest.fixture(scope="module")
def targets(model: Transformer) -> list[list[int]]:
    rows = greedy_in_batches(model, SOURCES, CONFIG.max_target_length, 8)
    return [[*row, CONFIG.eos_id][: CONFIG.max_target_length] for row in rows]


def test_greedy_targets_are_best_everywhere(model: Transformer, targets: list[list[int]]) -> None:
    assert len({len(target) for target in targets}) > 2
    scores = score_targets(model, SOURCES, targets)
    assert all((target.behind == 0).all() for target in scores)
    assert agreement(scores) == 1.0
    assert all((target.margins > 0).all() for target in scores)


def test_share_of_tokens_that_are_best(model: Transformer, targets: list[list[int]]) -> None:
    changed = [[(target[0] + 1) % 40, *target[1:]] for target in targets]
    scores = score_targets(model, SOURCES, changed)
    right = sum(int((target.behind == 0).sum()) for target in scores)
    assert agreement(scores) == pytest.approx(right / sum(map(len, changed)))
    assert agreement(scores) < 1.0
    lead = max(float(target.behind.max()) for target in scores)
    assert agreement(scores, tie=lead) == 1.0
    assert agreement(scores, tie=lead / 2) < 1.0


def test_target_scores_in_a_batch_as_alone(
    model: Transformer, targets: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three tokens at a time.
    monkeypatch.setattr(decoding, "_MAX_LOGITS", 3 * CONFIG.vocabulary_size)
    together = score_targets(model, SOURCES, targets)
    for source, target, batched in zip(SOURCES, targets, together, strict=True):
        [alone] = score_targets(model, [source], [target])
        logits = model(
            torch.tensor([source]),
            torch.tensor([len(source)]),
            torch.tensor([[CONFIG.bos_id, *target[:-1]]]),
        )[0].log_softmax(-1)
        expected = logits[range(len(target)), target].detach()
        for scores in (alone, batched):
            assert_same(torch.from_numpy(scores.log_probabilities), expected)
        assert np.allclose(alone.behind, batched.behind)
