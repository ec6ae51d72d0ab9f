"""Measures how far a model's own answers move when the last bits of its inputs do.

An int8 model rounds a value near the middle between two of its steps to either of them, by the last
bit of a sum, and deep networks amplify that. Two right implementations of a model may differ by as
much as this; a wrong one differs by more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqserve_export.forced_decoding import TargetScores, score_targets
from seqserve_model.transformer import Transformer

_CHANGE = 3e-7
"""Relative, of each number of an embedding, up or down: two or three times the last bit of fp32, by
which sums in another order differ. What comes of it grows in proportion."""


def sensitivity(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    scores: Sequence[TargetScores],
) -> float:
    """Measures by how much the log-probability of a token moves on average.

    Args:
        model: In evaluation mode.
        sources: Token ids, the end token last.
        targets: As :func:`seqserve_export.forced_decoding.score_targets` takes them.
        scores: What that function returned for the model as it is.
    """
    with _changed_embeddings(model):
        changed = score_targets(model, sources, targets)
    return mean_difference([target.log_probabilities for target in scores], changed)


def mean_difference(log_probabilities: Sequence[Any], scores: Sequence[TargetScores]) -> float:
    """Averages the differences of log-probabilities ``[T]`` of targets over all tokens."""
    pairs = zip(log_probabilities, scores, strict=True)
    return float(
        np.mean(np.concatenate([np.abs(ours - theirs.log_probabilities) for ours, theirs in pairs]))
    )


@contextmanager
def _changed_embeddings(model: Transformer) -> Iterator[None]:
    """Changes the outputs of the model's embeddings while the context lasts."""
    random = torch.Generator().manual_seed(1)

    def change(module: nn.Module, inputs: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        signs = torch.randint(0, 2, embedded.shape, generator=random) * 2 - 1
        return embedded * (1 + _CHANGE * signs)

    with ExitStack() as hooks:
        for embedding in {model.source_embedding, model.target_embedding}:
            hooks.callback(embedding.register_forward_hook(change).remove)
        yield
