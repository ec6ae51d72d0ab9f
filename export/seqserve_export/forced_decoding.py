"""Forced decoding: what the torch model makes of each token of known targets."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqserve_model.batches import padded
from seqserve_model.search import batches_by_length
from seqserve_model.transformer import Transformer

_BATCH_ROWS = 16
_MAX_TOKENS, _MAX_LOGITS = 128, 1 << 23
"""Maximum of one projection onto the vocabulary; logits are in memory four times."""


class TargetScores(NamedTuple):
    """The model's scores of a target of T tokens."""

    log_probabilities: NDArray[Any]  # of each token, float [T]
    behind: NDArray[Any]  # by how much the best logit in its place is larger, float [T]
    margins: NDArray[Any]  # by how much its logit leads over the second, float [T]


@torch.inference_mode()
def score_targets(
    model: Transformer, sources: Sequence[list[int]], targets: Sequence[list[int]]
) -> list[TargetScores]:
    """Scores targets of sources, in order.

    Sources end with the end token; targets may, and lack the begin token. Greedy search writes a
    target if no token at any place is better than the target's.
    """
    config = model.config
    count = min(_MAX_TOKENS, max(1, _MAX_LOGITS // config.vocabulary_size))
    scores: dict[int, TargetScores] = {}
    for batch in batches_by_length(targets, _BATCH_ROWS):
        source, lengths = padded([sources[index] for index in batch], config.pad_id)
        read, _ = padded([[config.bos_id, *targets[index][:-1]] for index in batch], config.pad_id)
        features = model.features(source, lengths, read)  # [B, T, W]
        sizes = [len(targets[index]) for index in batch]
        rows = torch.cat([features[row, :size] for row, size in enumerate(sizes)])  # [N, W]
        tokens = torch.tensor([token for index in batch for token in targets[index]])  # [N]
        pairs = zip(torch.split(rows, count), torch.split(tokens, count), strict=True)
        parts = zip(*(_score(model, *pair) for pair in pairs), strict=True)
        columns = [torch.split(torch.cat(part), sizes) for part in parts]
        for index, *arrays in zip(batch, *columns, strict=True):
            scores[index] = TargetScores(*(array.numpy() for array in arrays))
    return [scores[index] for index in range(len(targets))]


def _score(model: Transformer, features: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    logits = model.project(features)  # [N, V]
    first, second = logits.topk(2).values.unbind(1)
    chosen = logits.gather(1, tokens[:, None])[:, 0]
    return chosen - logits.logsumexp(1), first - chosen, first - second


def agreement(scores: Sequence[TargetScores], tie: float = 0.0) -> float:
    """Computes the share of tokens that the model would have chosen in their place.

    Tokens also count if they are worse than the best one by at most ``tie``.
    """
    return float(np.mean(np.concatenate([target.behind <= tie for target in scores])))
