"""How probable each word is to come next, after what a request asks to be changed."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.decoding.allowed_tokens import Vocabularies
from seqserve_server.engine.decoding.logits import Ranking, largest, log_softmax, penalized
from seqserve_server.engine.decoding.token_buffer import TokenBuffer
from seqserve_server.engine.packing import Array


class Best(NamedTuple):
    """What the graph has listed for a row, best first."""

    token_ids: Array
    """Words, ``[K]``."""
    log_probabilities: Array

    def best(self, count: int) -> Best:
        """Gives the first ``count`` of them."""
        return Best(self.token_ids[:count], self.log_probabilities[:count])

    def ranking(self, count: int) -> Ranking:
        """Lists the first ``count`` of them, but for those that are forbidden."""
        token_ids, found = self.token_ids[:count].tolist(), self.log_probabilities[:count].tolist()
        return [pair for pair in zip(token_ids, found, strict=True) if pair[1] > MASKED_LOGIT / 2]


class Distribution:
    """Log-probabilities of the next word of one row, after the changes its request asks for."""

    def __init__(
        self, scores: Array, said: list[int], options: DecodingOptions, words: Array | None = None
    ) -> None:
        """Changes what is to be changed.

        Args:
            scores: Of all words, or of those that may be said, ``[N]``.
            said: What the row has said so far.
            options: Of its request.
            words: Those that may be said, rising, ``[N]``; None for all.
        """
        self._words = words
        if options.repetition_penalty != 1.0:
            places = [place for word in said if (place := self._place(word)) is not None]
            # What is forbidden stays beyond reach, however much is to be repeated.
            places = [place for place in places if scores[place] > MASKED_LOGIT / 2]
            scores = penalized(scores, places, options.repetition_penalty)
        self.log_probabilities = log_softmax(scores)
        """``[N]``"""
        length = len(said)
        if options.prefix_bias_beta and tuple(said) == options.prefix[:length] != options.prefix:
            self._prefer(options.prefix[length], options.prefix_bias_beta)

    def _prefer(self, word: int, share: float) -> None:
        """Gives a word a share of all probability, beside what it has of the rest."""
        found = self.log_probabilities
        found += np.log1p(-share)
        found[word] = np.logaddexp(found[word], np.log(share))

    def _place(self, word: int) -> int | None:
        if self._words is None:
            return word
        place = int(self._words.searchsorted(word))
        return place if place < len(self._words) and self._words[place] == word else None

    def word(self, place: int) -> int:
        """Gives the word at a place of the log-probabilities."""
        return int(place if self._words is None else self._words[place])

    def log_probability(self, word: int) -> float:
        """Gives that of a word."""
        place = self._place(word)
        return -math.inf if place is None else float(self.log_probabilities[place])

    def best(self, count: int) -> Best:
        """Gives the most probable words."""
        places = largest(self.log_probabilities, count)
        words = places if self._words is None else self._words[places]
        return Best(words, self.log_probabilities[places])

    def ranking(self, count: int) -> Ranking:
        """Lists the most probable words, but for those that are forbidden."""
        return self.best(count).ranking(count)


class Distributions:
    """What the last step has found."""

    def __init__(self, cache: SlotCache, history: TokenBuffer, vocabularies: Vocabularies) -> None:
        """Takes what was found, and what had been said before."""
        self._cache = cache
        self._history = history
        self._vocabularies = vocabularies

    def of(self, row: int, options: DecodingOptions) -> Best | Distribution:
        """Gives what may come next in a row: of all words where the request changes them."""
        if not options.needs_distribution:
            return Best(*(array[0] for array in self._cache.best([row])))
        said, words = self.said(row), options.vocabulary
        if not words:
            return Distribution(self._cache.scores(row), said, options)
        allowed, scores = self._vocabularies.scores(row, words)
        return Distribution(scores, said, options, allowed)

    def said(self, row: int) -> list[int]:
        """Gives what a row had said before the step."""
        return self._history.said(row, int(self._cache.lengths[row]) - 1)


def alternative(
    found: Best | Distribution, number: int, options: DecodingOptions
) -> tuple[int, float] | None:
    """Gives the first word of an alternative and its log-probability.

    Args:
        found: What may come after the prefix.
        number: How many alternatives are more probable.
        options: Of the request.

    Returns:
        None where it is too improbable; the first one never is.
    """
    ranking = found.ranking(number + 1)
    if number == 0:
        return ranking[0]
    if len(ranking) <= number:
        return None
    is_probable = math.exp(ranking[number][1]) >= options.min_alternative_expansion_prob
    return ranking[number] if is_probable else None
