"""What a hypothesis may not say next, and what ends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from seqserve_server.engine.request import DecodingOptions, StopReason

if TYPE_CHECKING:
    from seqserve_server.engine.path import Path

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
        self._ends = frozenset(options.end_ids or (eos,))
        self._detokenize = detokenize
        self.bans_some = bool(
            options.min_decoding_length or options.suppressed or options.no_repeat_ngram_size
        )
        """Whether there ever are words that must not be said."""

    def bans(self, path: Path) -> list[int]:
        """Lists the words that must not come next."""
        options, words = self._options, path.words()
        banned: set[int] = set()
        if len(words) < options.min_decoding_length:
            banned |= self._ends
        for sequence in options.suppressed:
            before = len(sequence) - 1
            if before <= len(words) and tuple(words[len(words) - before :]) == sequence[:-1]:
                banned.add(sequence[-1])
        if options.no_repeat_ngram_size:
            banned |= _repeating(words, options.no_repeat_ngram_size)
        return sorted(banned)

    def forced(self, length: int) -> int | None:
        """Gives the word of the prefix that comes after so many; None where it is over."""
        prefix = self._options.prefix
        return prefix[length] if length < len(prefix) else None

    def end(self, path: Path) -> End | None:
        """Tells whether a path is a whole hypothesis, and what of it counts."""
        if path.word in self._ends:
            return End(StopReason.EOS, path.length - 1)
        if self._options.stops:
            words = path.words()
            text = self._detokenize(words)
            found = [place for stop in self._options.stops if (place := text.find(stop)) >= 0]
            if found:
                length = min(found)
                return End(StopReason.STOP_SEQUENCE, self._covering(words, text[:length]), length)
        if path.length >= self._options.max_decoding_length:
            return End(StopReason.LENGTH, path.length)
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
