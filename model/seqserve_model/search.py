"""Greedy search on the torch model: the reference for the engine, and the scores in training."""

from __future__ import annotations

import torch
from torch import Tensor

from seqserve_model.transformer import Transformer


@torch.inference_mode()
def greedy(
    model: Transformer, source: Tensor, source_lengths: Tensor, max_decoding_length: int
) -> list[list[int]]:
    """Decodes the likeliest next word again and again, with cached keys and values.

    Args:
        model: In evaluation mode.
        source: Word ids ``[B, S]``.
        source_lengths: ``[B]``.
        max_decoding_length: Most words per row, the end token not counted.

    Returns:
        The words of each row, without the end token.
    """
    config = model.config
    state = model.begin(model.encode(source, source_lengths), source_lengths)
    words = source.new_full((source.size(0), 1), config.bos_id)
    done = torch.zeros(source.size(0), dtype=torch.bool, device=source.device)
    steps: list[Tensor] = []
    for _ in range(max_decoding_length):
        logits = model.project(model.advance(words, state)[:, -1])  # [B, V]
        words = logits.argmax(-1, keepdim=True)  # [B, 1]
        done |= words[:, 0] == config.eos_id
        if done.all():
            break
        steps.append(words.masked_fill(done[:, None], config.eos_id))
    rows = torch.cat(steps, dim=1).tolist() if steps else [[] for _ in range(source.size(0))]
    return [[word for word in row if word != config.eos_id] for row in rows]
