"""Batches of about equally long pairs, limited by the number of tokens they hold.

Lengths are sorted within shuffled pools, so that little is padding while every epoch groups the
pairs anew. The order of an epoch follows from its seed and number alone: a resumed training sees
the batches it would have seen.

Source: Vaswani et al. 2017, §5.1 ("batched together by approximate sequence length").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from seqserve_model.config import TransformerConfig
from seqserve_model.data import Pair
from seqserve_server.contract.tokenizer import Tokenizer

_POOL_BATCHES = 100

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded pairs, ready for the model."""

    source: Tensor  # [B, S]
    source_lengths: Tensor  # [B]
    target_in: Tensor  # [B, T], begins with bos
    target_out: Tensor  # [B, T], ends with eos
    target_tokens: int

    def to(self, device: torch.device) -> Batch:
        """Gives the same batch on a device."""
        tensors = ("source", "source_lengths", "target_in", "target_out")
        return replace(self, **{name: getattr(self, name).to(device) for name in tensors})


class Examples:
    """Tokenised pairs, each kept as one array of ids."""

    def __init__(
        self,
        pairs: Sequence[Pair],
        tokenizer: Tokenizer,
        config: TransformerConfig,
        weights: Sequence[float] | None = None,
    ) -> None:
        """Tokenises pairs and drops those longer than the model's limits.

        Attributes are ``dropped``, the number of pairs that were too long, ``lengths``, the
        source and target tokens of each pair that is left, the end token counted, and
        ``weights``, how often an epoch has each of these, or None for once.
        """
        sources = tokenizer.encode_batch([pair.source for pair in pairs])
        targets = tokenizer.encode_batch([pair.target for pair in pairs])
        # Only the limit of a source counts the end token.
        kept = [
            row
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
            if len(source) <= config.max_source_length
            and len(target) - 1 <= config.max_target_length
        ]
        self._config = config
        self._sources: list[Ids] = [np.array(sources[row], dtype=np.int64) for row in kept]
        self._targets: list[Ids] = [np.array(targets[row], dtype=np.int64) for row in kept]
        self.dropped = len(pairs) - len(kept)
        lengths = [(len(sources[row]), len(targets[row])) for row in kept]
        self.lengths = np.array(lengths, dtype=np.int64).reshape(-1, 2)
        self.weights = None if weights is None else np.array([weights[row] for row in kept])

    def __len__(self) -> int:
        """Counts the pairs."""
        return len(self._sources)

    def batch(self, rows: Sequence[int]) -> Batch:
        """Pads some pairs to one batch."""
        pad, bos = self._config.pad_id, self._config.bos_id
        source, source_lengths = padded([self._sources[row] for row in rows], pad)
        target_out, target_lengths = padded([self._targets[row] for row in rows], pad)
        target_in = torch.full_like(target_out, pad)
        target_in[:, 0] = bos
        target_in[:, 1:] = target_out[:, :-1]
        return Batch(
            source=source,
            source_lengths=source_lengths,
            target_in=target_in,
            target_out=target_out,
            target_tokens=int(target_lengths.sum()),
        )


def epoch_order(
    lengths: Ids,
    *,
    max_tokens: int,
    seed: int,
    epoch: int,
    weights: NDArray[np.float64] | None = None,
) -> list[list[int]]:
    """Groups the pairs of one epoch into batches, each given as its rows.

    Args:
        lengths: Source and target tokens of each pair, ``[N, 2]``.
        max_tokens: Limit of tokens in a batch, both sides and padding counted; a longer pair makes
            a batch of its own.
        seed: Decides the order, together with the epoch.
        epoch: Index of the epoch.
        weights: How often each pair occurs on average, ``[N]``: 2.5 is twice in one epoch and
            three times in another. None for once.
    """
    random = np.random.default_rng((seed, epoch))
    rows = np.arange(len(lengths)) if weights is None else weighted_rows(weights, random)
    shuffled = random.permutation(rows)
    mean_tokens = max(1.0, float(lengths.sum()) / max(1, len(lengths)))
    pool_rows = max(1, int(_POOL_BATCHES * max_tokens / mean_tokens))
    batches: list[list[int]] = []
    for start in range(0, len(shuffled), pool_rows):
        pool = shuffled[start : start + pool_rows]
        # Target first: its padding costs the most.
        order = np.lexsort((lengths[pool, 0], lengths[pool, 1]))
        batches.extend(_cut(pool[order], lengths, max_tokens))
    return [batches[i] for i in random.permutation(len(batches))]


def weighted_rows(weights: NDArray[np.float64], random: np.random.Generator) -> Ids:
    """Lists the rows of one epoch, each as often as its weight ``[N]`` says, in their order."""
    whole = np.floor(weights)
    repeats = whole + (random.random(len(weights)) < weights - whole)
    return np.arange(len(weights)).repeat(repeats.astype(np.int64))


def _cut(rows: Ids, lengths: Ids, max_tokens: int) -> Iterator[list[int]]:
    batch: list[int] = []
    max_lengths = np.zeros(2, dtype=np.int64)
    for row in rows.tolist():
        widened = np.maximum(max_lengths, lengths[row])
        if batch and (len(batch) + 1) * int(widened.sum()) > max_tokens:
            yield batch
            batch, widened = [], lengths[row]
        batch.append(row)
        max_lengths = widened
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int] | Ids], pad_id: int) -> tuple[Tensor, Tensor]:
    """Makes one batch of rows: token ids ``[B, S]``, padded on the right, and lengths ``[B]``."""
    tensors = [torch.as_tensor(row) for row in rows]
    lengths = torch.tensor([len(row) for row in rows])
    return pad_sequence(tensors, batch_first=True, padding_value=pad_id), lengths
