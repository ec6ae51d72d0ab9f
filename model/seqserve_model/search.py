"""Greedy search on the torch model: the reference for the engine, and for scores in training."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from seqserve_model.batches import padded
from seqserve_model.transformer import Transformer


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
