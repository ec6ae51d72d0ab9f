"""Decodes with the torch model: greedily, which the engine is compared with, or forced.

Forced decoding tells what the model makes of each token of known targets.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqserve_model.batches import padded
from seqserve_model.transformer import Transformer

_BATCH_ROWS = 16
_MAX_TOKENS, _MAX_LOGITS = 128, 1 << 23
"""Maximum of one projection onto the vocabulary; logits are in memory four times."""


@torch.inference_mode()
def greedy(
    model: Transformer, source: Tensor, source_lengths: Tensor, max_decoding_length: int
) -> list[list[int]]:
    """Decodes sources ``[B, S]`` of ``source_lengths [B]`` greedily, with cached keys and values.

    The model is in evaluation mode. Neither the rows returned nor their limit count the end token.
    """
    config = model.config
    state = model.begin(model.encode(source, source_lengths), source_lengths)
    tokens = source.new_full((source.size(0), 1), config.bos_id)
    done = torch.zeros(source.size(0), dtype=torch.bool, device=source.device)
    steps: list[Tensor] = []
    for _ in range(max_decoding_length):
        logits = model.project(model.advance(tokens, state)[:, -1])  # [B, V]
        tokens = logits.argmax(-1, keepdim=True)  # [B, 1]
        done |= tokens[:, 0] == config.eos_id
        if done.all():
            break
        steps.append(tokens.masked_fill(done[:, None], config.eos_id))
    rows = torch.cat(steps, dim=1).tolist() if steps else [[] for _ in range(source.size(0))]
    return [[token for token in row if token != config.eos_id] for row in rows]


def greedy_in_batches(
    model: Transformer, rows: Sequence[list[int]], max_decoding_length: int, batch_rows: int
) -> list[list[int]]:
    """Decodes any number of sources as :func:`greedy` does, in batches of similar lengths.

    The model may be on any device. Each of ``rows`` has the end token last; the results keep the
    order of the rows.
    """
    device = next(model.parameters()).device
    targets: list[list[int]] = [[] for _ in rows]
    for batch in batches_by_length(rows, batch_rows):
        source, lengths = padded([rows[index] for index in batch], model.config.pad_id)
        decoded = greedy(model, source.to(device), lengths.to(device), max_decoding_length)
        for index, target in zip(batch, decoded, strict=True):
            targets[index] = target
    return targets


def batches_by_length(rows: Sequence[list[int]], size: int) -> Iterator[list[int]]:
    """Returns the indices of rows, from short to long, ``size`` at a time."""
    by_length = sorted(range(len(rows)), key=lambda index: len(rows[index]))
    for start in range(0, len(by_length), size):
        yield by_length[start : start + size]


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
