"""What a model says of a source and the words of a target, all read anew for every word."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.contract.options import DecodingOptions

Array = NDArray[np.float64]
Words = tuple[int, ...]


class Reading:
    """Of one source, changed as a request asks."""

    def __init__(self, model: Transformer, source: list[int], options: DecodingOptions) -> None:
        """Takes a source, which ends with the end token."""
        self._model, self.options = model, options
        self._source, self._length = torch.tensor([source]), torch.tensor([len(source)])
        self.ends = set(options.end_ids or [model.config.eos_id])
        """Words that end a hypothesis."""
        self.forced = () if options.prefix_bias_beta else options.prefix
        """Words that every hypothesis begins with, of which nothing is known."""
        # Only so that it takes less time.
        self.log_probabilities = cache(self._log_probabilities)

    def _read(self, words: Words) -> torch.Tensor:
        return torch.tensor([[self._model.config.bos_id, *words]])

    def scores(self, words: Words) -> list[float]:
        """Gives the log-probability of each word; not a number where it is forced."""
        free = range(len(self.forced), len(words))
        found = [float(self.log_probabilities(words[:n])[words[n]]) for n in free]
        return [math.nan for _ in words[: len(self.forced)]] + found

    def score(self, words: Words) -> float:
        """Gives the sum of them."""
        return math.fsum(score for score in self.scores(words) if not math.isnan(score))

    @torch.inference_mode()
    def _log_probabilities(self, words: Words) -> Array:
        """Tells how probable each word is to come next, ``[V]``."""
        options = self.options
        read = self._model(self._source, self._length, self._read(words))
        scores: Array = read[0, -1].double().numpy()
        for word in set(words):
            penalty = options.repetition_penalty
            scores[word] *= penalty if scores[word] < 0 else 1 / penalty
        scores[np.setdiff1d(np.arange(len(scores)), list(self._possible(words)))] = -np.inf
        found = scores - scores.max()
        found -= np.log(np.exp(found).sum())
        beta, prefix = options.prefix_bias_beta, options.prefix
        if beta and words == prefix[: len(words)] != prefix:
            shares = (1 - beta) * np.exp(found)
            shares[prefix[len(words)]] += beta
            with np.errstate(divide="ignore"):
                found = np.log(shares)
        return found

    def _possible(self, words: Words) -> set[int]:
        """Finds what may come next; where it would be nothing, the end, too short as it may be."""
        never, size = list(self.options.suppressed), self.options.no_repeat_ngram_size
        if size:
            never += [words[place : place + size] for place in range(len(words) - size + 1)]
        free = set(self.options.vocabulary or range(self._model.config.vocabulary_size))
        for *before, last in never:
            if [*words[len(words) - len(before) :]] == before:
                free.discard(last)
        is_short = len(words) < self.options.min_decoding_length
        return (is_short and free - self.ends) or free or self.ends

    @torch.inference_mode()
    def coverage(self, words: Words) -> float:
        """Sums the logarithms of what each source word was attended to, at most 1 each.

        What counts is the mean over the heads of the last layer.
        """
        record = AttentionRecord()
        memory = self._model.encode(self._source, self._length, record)
        begun = self._model.begin(memory, self._length)
        self._model.advance(self._read(words), begun, record)
        weights: Array = record.cross[-1][0].mean(0)[: len(words)].double().numpy()  # [T, S]
        attended = weights.sum(0)
        return float(np.log(np.minimum(attended[attended > 0], 1)).sum())
