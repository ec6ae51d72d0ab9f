"""What a hypothesis may not say next, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from seqserve_server.engine.request import DecodingOptions, StopReason

Detokenize: TypeAlias = Callable[[Sequence[int]], str]
"""Gives the text of tokens."""


class End(NamedTuple):
    """The end of a hypothesis."""

    reason: StopReason
    kept: int
    """How many of its words are its answer."""
    text_length: int | None = None
    """Characters before the stop sequence, where that is the reason."""


class Constraints:
    """Those of one request."""

    def __init__(self, options: DecodingOptions, eos: int, detokenize: Detokenize) -> None:
        """Takes what was asked for.

        Args:
            options: Of the request.
            eos: The model's end token.
            detokenize: Gives the text in which stop sequences are looked for.
        """
        self._options = options
        self.ends = frozenset(options.end_ids or (eos,))
        """Words that end a hypothesis."""
        self._detokenize = detokenize

    def bans(self, words: list[int]) -> list[int]:
        """Lists what must not come after ``words``."""
        options = self._options
        banned: set[int] = set()
        if len(words) < options.min_decoding_length:
            banned |= self.ends
        for sequence in options.suppressed:
            before = len(sequence) - 1
            if before <= len(words) and tuple(words[len(words) - before :]) == sequence[:-1]:
                banned.add(sequence[-1])
        if options.no_repeat_ngram_size:
            banned |= _repeating(words, options.no_repeat_ngram_size)
        return sorted(banned)

    def forced(self, length: int) -> int | None:
        """Gives the word of the prefix that comes after so many; None where there is none."""
        prefix = self._options.prefix
        is_over = length >= len(prefix) or self._options.prefix_bias_beta
        return None if is_over else prefix[length]

    def end(self, words: list[int]) -> End | None:
        """Tells whether words are a whole hypothesis, and what of it counts."""
        if words[-1] in self.ends:
            return End(StopReason.EOS, len(words) - 1)
        if self._options.stops:
            text = self._detokenize(words)
            found = [place for stop in self._options.stops if (place := text.find(stop)) >= 0]
            if found:
                length = min(found)
                return End(StopReason.STOP_SEQUENCE, self._covering(words, text[:length]), length)
        if len(words) >= self._options.max_decoding_length:
            return End(StopReason.LENGTH, len(words))
        return None

    def _covering(self, words: list[int], text: str) -> int:
        """Counts the words that the beginning of their text comes from."""
        for count in range(len(words)):
            if self._detokenize(words[:count]).startswith(text):
                return count
        return len(words)


def _repeating(words: list[int], size: int) -> set[int]:
    """Finds the words that would complete a sequence of ``size`` words a second time.

    Source: Paulus et al. 2017, "A Deep Reinforced Model for Abstractive Summarization", 2.5.
    """
    before = size - 1
    last = words[len(words) - before :]
    return {
        words[place + before]
        for place in range(len(words) - before)
        if words[place : place + before] == last
    }
