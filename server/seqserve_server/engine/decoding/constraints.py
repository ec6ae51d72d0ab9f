"""What a hypothesis may not say next, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from seqserve_server.contract.events import StopReason
from seqserve_server.contract.options import DecodingOptions

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
    """What one request forbids, forces and ends with."""

    def __init__(
        self, options: DecodingOptions, eos: int, vocabulary_size: int, detokenize: Detokenize
    ) -> None:
        """Takes what was asked for.

        Args:
            options: Of the request.
            eos: The model's end token.
            vocabulary_size: Words that the model knows.
            detokenize: Gives the text in which stop sequences are looked for.
        """
        self._options = options
        self.ends = frozenset(options.end_ids or (eos,))
        """Words that end a hypothesis."""
        self._detokenize = detokenize
        self._vocabulary = frozenset(options.vocabulary)
        self._vocabulary_size = vocabulary_size
        is_forced = options.stops and options.prefix and not options.prefix_bias_beta
        # Characters of a prefix that is forced, which no stop sequence cuts.
        self._given = len(detokenize(options.prefix)) if is_forced else 0

    def bans(self, words: list[int]) -> list[int]:
        """Lists what must not come after ``words``.

        It never is all that there is: a hypothesis that has nothing left to say may end, whatever
        keeps it from that. Its shortest length is the first to yield.
        """
        forbidden = self._forbidden(words)
        is_short = len(words) < self._options.min_decoding_length
        banned = forbidden | self.ends if is_short else forbidden
        if not self._leaves_some(banned):
            banned = forbidden if self._leaves_some(forbidden) else forbidden - self.ends
        return sorted(banned)

    def _forbidden(self, words: list[int]) -> set[int]:
        """Finds what must not come after ``words``, whatever the shortest length."""
        options = self._options
        banned: set[int] = set()
        for sequence in options.suppressed:
            before = len(sequence) - 1
            if before <= len(words) and tuple(words[len(words) - before :]) == sequence[:-1]:
                banned.add(sequence[-1])
        if options.no_repeat_ngram_size:
            banned |= _repeating(words, options.no_repeat_ngram_size)
        return banned

    def _leaves_some(self, banned: set[int]) -> bool:
        if self._vocabulary:
            return not self._vocabulary <= banned
        return len(banned) < self._vocabulary_size

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
            places = (text.find(stop, self._given) for stop in self._options.stops)
            found = [place for place in places if place >= 0]
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
