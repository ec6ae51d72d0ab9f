"""The log-probabilities that a model gives after some tokens, as a request changes them.

The torch model reads source and target anew for every token: no batch, no cache.
"""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.contract.options import DecodingOptions

Array = NDArray[np.float64]
TokenIds = tuple[int, ...]


class ReferenceLogProbs:
    """The next-token probabilities of one request."""

    def __init__(self, model: Transformer, source: list[int], options: DecodingOptions) -> None:
        """Takes a source, which ends with the end token."""
        self._model, self.options = model, options
        self._source, self._length = torch.tensor([source]), torch.tensor([len(source)])
        self.ends = set(options.end_ids or [model.config.eos_id])
        """Tokens that end a hypothesis."""
        self.forced = () if options.prefix_bias_beta else options.prefix
        """Tokens that every hypothesis begins with and that have no score."""
        # For speed only.
        self.log_probabilities = cache(self._log_probabilities)

    def _target(self, output: TokenIds) -> torch.Tensor:
        return torch.tensor([[self._model.config.bos_id, *output]])

    def token_scores(self, output: TokenIds) -> list[float]:
        """Returns the log-probability of each token; NaN where it is forced."""
        free = range(len(self.forced), len(output))
        found = [float(self.log_probabilities(output[:n])[output[n]]) for n in free]
        return [math.nan for _ in output[: len(self.forced)]] + found

    def score(self, output: TokenIds) -> float:
        """Returns the sum of the log-probabilities, forced tokens left out."""
        return math.fsum(score for score in self.token_scores(output) if not math.isnan(score))

    @torch.inference_mode()
    def _log_probabilities(self, output: TokenIds) -> Array:
        """Returns the log-probability of each token after some, ``[V]``."""
        options = self.options
        if options.force_end_token and len(output) == options.max_decoding_length - 1:
            certain = np.full(self._model.config.vocabulary_size, -np.inf)
            certain[(options.end_ids or [self._model.config.eos_id])[0]] = 0.0
            return certain
        read = self._model(self._source, self._length, self._target(output))
        logits: Array = read[0, -1].double().numpy()
        for token in set(output):
            penalty = options.repetition_penalty
            logits[token] *= penalty if logits[token] < 0 else 1 / penalty
        logits[np.setdiff1d(np.arange(len(logits)), list(self._possible(output)))] = -np.inf
        found = logits - logits.max()
        found -= np.log(np.exp(found).sum())
        beta, prefix = options.prefix_bias_beta, options.prefix
        if beta and output == prefix[: len(output)] != prefix:
            shares = (1 - beta) * np.exp(found)
            shares[prefix[len(output)]] += beta
            with np.errstate(divide="ignore"):
                found = np.log(shares)
        return found

    def _possible(self, output: TokenIds) -> set[int]:
        """Finds the tokens that are not suppressed; the end tokens where all are."""
        suppressed, size = list(self.options.suppressed), self.options.no_repeat_ngram_size
        if size:
            suppressed += [output[begin : begin + size] for begin in range(len(output) - size + 1)]
        free = set(self.options.vocabulary or range(self._model.config.vocabulary_size))
        for *before, last in suppressed:
            if [*output[len(output) - len(before) :]] == before:
                free.discard(last)
        is_short = len(output) < self.options.min_decoding_length
        return (is_short and free - self.ends) or free or self.ends

    @torch.inference_mode()
    def coverage(self, output: TokenIds) -> float:
        """Sums the logarithms of the attention that each source token got, at most 1 each.

        The attention is the mean over the heads of the last layer.
        """
        record = AttentionRecord()
        memory = self._model.encode(self._source, self._length, record)
        begun = self._model.begin(memory, self._length)
        self._model.advance(self._target(output), begun, record)
        weights: Array = record.cross[-1][0].mean(0)[: len(output)].double().numpy()  # [T, S]
        attended = weights.sum(0)
        return float(np.log(np.minimum(attended[attended > 0], 1)).sum())
