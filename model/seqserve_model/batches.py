"""Batches of about equally long pairs, limited by the number of tokens they hold.

Lengths are sorted within shuffled pools, so that batches have little padding while every epoch
groups the pairs differently. Only seed and number of an epoch determine its order: a resumed
training sees the same batches.

Source: Vaswani et al. 2017, §5.1 ("batched together by approximate sequence length").
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from seqserve_model.config import TransformerConfig
from seqserve_model.data import Pair
from seqserve_server.text.tokenizer import Tokenizer

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
        """Returns the batch on a device; the copy to a GPU does not wait for its other work."""

        def moved(tensor: Tensor) -> Tensor:
            tensor = tensor.pin_memory() if device.type == "cuda" else tensor
            return tensor.to(device, non_blocking=True)

        return Batch(
            source=moved(self.source),
            source_lengths=moved(self.source_lengths),
            target_in=moved(self.target_in),
            target_out=moved(self.target_out),
            target_tokens=self.target_tokens,
        )


class Rows:
    """Rows of token ids in one array, so that many are padded at once."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        """Joins the rows; ``lengths`` are their tokens, ``[N]``."""
        self.lengths: Ids = np.array([len(row) for row in rows], dtype=np.int64)
        self._starts = np.cumsum(self.lengths) - self.lengths
        tokens = itertools.chain.from_iterable(rows)
        self._tokens = np.fromiter(tokens, np.int32, count=int(self.lengths.sum()))

    def padded(self, chosen: Sequence[int], pad_id: int) -> tuple[Ids, Ids]:
        """Returns some rows ``[B, S]``, padded on the right, and their lengths ``[B]``."""
        lengths = self.lengths[chosen]
        columns = np.arange(lengths.max())
        places = self._starts[chosen][:, None] + columns  # [B, S]
        tokens = self._tokens.take(places, mode="clip")
        return np.where(columns < lengths[:, None], tokens, np.int64(pad_id)), lengths


class Examples:
    """Tokenised pairs."""

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
        self._sources = Rows([sources[row] for row in kept])
        self._targets = Rows([targets[row] for row in kept])
        self.dropped = len(pairs) - len(kept)
        self.lengths = np.stack((self._sources.lengths, self._targets.lengths), axis=1)
        self.weights = None if weights is None else np.array([weights[row] for row in kept])

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, rows: Sequence[int]) -> Batch:
        """Pads some pairs to one batch."""
        pad, bos = self._config.pad_id, self._config.bos_id
        source, source_lengths = self._sources.padded(rows, pad)
        target_out, target_lengths = self._targets.padded(rows, pad)
        begins = np.full((len(rows), 1), bos)
        target_in = np.concatenate((begins, target_out[:, :-1]), axis=1)
        return Batch(
            source=torch.from_numpy(source),
            source_lengths=torch.from_numpy(source_lengths),
            target_in=torch.from_numpy(target_in),
            target_out=torch.from_numpy(target_out),
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
        max_tokens: Limit of tokens in a batch, including both sides and padding; a longer pair is a
            batch by itself.
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
    source = target = 0  # the longest so far
    for row, (source_length, target_length) in zip(
        rows.tolist(), lengths[rows].tolist(), strict=True
    ):
        source, target = max(source, source_length), max(target, target_length)
        if batch and (len(batch) + 1) * (source + target) > max_tokens:
            yield batch
            batch, source, target = [], source_length, target_length
        batch.append(row)
    if batch:
        yield batch


def padded(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Makes one batch of rows: token ids ``[B, S]``, padded on the right, and lengths ``[B]``."""
    ids, lengths = Rows(rows).padded(range(len(rows)), pad_id)
    return torch.from_numpy(ids), torch.from_numpy(lengths)
