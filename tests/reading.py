"""What a model says of a source and the words of a target, all read anew for every word."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from seqserve_model.transformer import AttentionRecord, Transformer
from seqserve_server.engine.request import DecodingOptions

Array = NDArray[np.float64]
Words = tuple[int, ...]


class Reading:
    """Of one source, changed as a request asks."""

    def __init__(self, model: Transformer, source: list[int], options: DecodingOptions) -> None:
        self._model, self._options = model, options
        self._source, self._length = torch.tensor([source]), torch.tensor([len(source)])
        self.ends = set(options.end_ids or [model.config.eos_id])
        """Words that end a hypothesis."""

    def _read(self, words: Words) -> torch.Tensor:
        return torch.tensor([[self._model.config.bos_id, *words]])

    @torch.inference_mode()
    def log_probabilities(self, words: Words) -> Array:
        """Tells how probable each word is to come next, ``[V]``."""
        options = self._options
        read = self._model(self._source, self._length, self._read(words))
        scores: Array = read[0, -1].double().numpy()
        for word in set(words):
            penalty = options.repetition_penalty
            scores[word] *= penalty if scores[word] < 0 else 1 / penalty
        scores[self._banned(words)] = -np.inf
        found = scores - scores.max()
        found -= np.log(np.exp(found).sum())
        beta, prefix = options.prefix_bias_beta, options.prefix
        if beta and words == prefix[: len(words)] != prefix:
            shares = (1 - beta) * np.exp(found)
            shares[prefix[len(words)]] += beta
            with np.errstate(divide="ignore"):
                found = np.log(shares)
        return found

    def _banned(self, words: Words) -> list[int]:
        never, size = list(self._options.suppressed), self._options.no_repeat_ngram_size
        if len(words) < self._options.min_decoding_length:
            never += [(end,) for end in self.ends]
        if size:
            never += [words[place : place + size] for place in range(len(words) - size + 1)]
        return [last for *before, last in never if [*words[len(words) - len(before) :]] == before]

    @torch.inference_mode()
    def attention(self, words: Words) -> Array:
        """Gives what each word attended to, ``[T, S]``: the mean over the last layer's heads."""
        record = AttentionRecord()
        memory = self._model.encode(self._source, self._length, record)
        begun = self._model.begin(memory, self._length)
        self._model.advance(self._read(words), begun, record)
        weights: Array = record.cross[-1][0].mean(0)[: len(words)].double().numpy()
        return weights
