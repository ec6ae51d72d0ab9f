"""What a hypothesis must not generate next, what it must, and what ends it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from seqserve_server.contract.events import StopReason
from seqserve_server.contract.options import ANY_TOKEN, DecodingOptions
from seqserve_server.engine.packing import Array

Detokenize: TypeAlias = Callable[[Sequence[int]], str]
"""Returns the text of tokens."""


class End(NamedTuple):
    """The end of a hypothesis."""

    reason: StopReason
    length: int
    """How many of its tokens are its answer."""
    text_length: int | None = None
    """Characters before the stop sequence, where that is the reason."""


class Constraints:
    """Suppressed tokens, forced prefix and ends of one request."""

    def __init__(
        self,
        options: DecodingOptions,
        eos: int,
        candidates: Sequence[int] | Array,
        detokenize: Detokenize,
    ) -> None:
        """Takes the options, and the tokens that the request may choose from."""
        self._options = options
        self.end_ids = frozenset(options.end_ids or (eos,))
        """Tokens that end a hypothesis."""
        self.forced_end = options.end_ids[0] if options.end_ids else eos
        """Token that ends a hypothesis of the maximum length, if the request wants one."""
        self._detokenize = detokenize
        self._candidates = candidates
        is_forced = options.stops and options.prefix and not options.prefix_bias_beta
        # Characters of a forced prefix, which no stop sequence cuts.
        self._prefix_characters = len(detokenize(options.prefix)) if is_forced else 0

    def suppressed(self, output: list[int]) -> list[int]:
        """Lists the tokens that must not come after ``output``.

        Some token always stays: a hypothesis with nothing left to generate may end, whatever
        suppresses its end. The minimum length yields first.
        """
        suppressed = self._suppressed(output)
        is_short = len(output) < self._options.min_decoding_length
        if is_short and self._leaves_some(suppressed | self.end_ids):
            suppressed |= self.end_ids
        elif not self._leaves_some(suppressed):
            suppressed -= self.end_ids
        return sorted(suppressed)

    def _suppressed(self, output: list[int]) -> set[int]:
        """Finds the suppressed tokens, without the minimum length."""
        options = self._options
        suppressed: set[int] = set()
        for sequence in options.suppressed:
            before = len(sequence) - 1
            last = tuple(output[len(output) - before :])
            if before <= len(output) and (last == sequence[:-1] or sequence[:-1] == (ANY_TOKEN,)):
                suppressed.add(sequence[-1])
        if options.no_repeat_ngram_size:
            suppressed |= _repeating(output, options.no_repeat_ngram_size)
        return suppressed

    def _leaves_some(self, suppressed: set[int]) -> bool:
        is_fewer = len(suppressed) < len(self._candidates)
        return is_fewer or not suppressed.issuperset(self._candidates)

    def forced(self, length: int) -> int | None:
        """Returns the token of the prefix after ``length`` tokens; None after its end."""
        prefix = self._options.prefix
        is_free = length >= len(prefix) or self._options.prefix_bias_beta
        return None if is_free else prefix[length]

    def end(self, token_ids: list[int]) -> End | None:
        """Tells whether tokens are a whole hypothesis, and how much of it counts."""
        is_longest = len(token_ids) >= self._options.max_decoding_length
        if is_longest and self._options.force_end_token:
            return End(StopReason.LENGTH, len(token_ids) - 1)
        if token_ids[-1] in self.end_ids:
            return End(StopReason.EOS, len(token_ids) - 1)
        if self._options.stops:
            text = self._detokenize(token_ids)
            places = (text.find(stop, self._prefix_characters) for stop in self._options.stops)
            length = min((place for place in places if place >= 0), default=None)
            if length is not None:
                covering = self._covering(token_ids, text[:length])
                return End(StopReason.STOP_SEQUENCE, covering, length)
        return End(StopReason.LENGTH, len(token_ids)) if is_longest else None

    def _covering(self, token_ids: list[int], text: str) -> int:
        """Counts the first tokens whose text begins with ``text``."""
        for count in range(len(token_ids)):
            if self._detokenize(token_ids[:count]).startswith(text):
                return count
        return len(token_ids)


def _repeating(output: list[int], size: int) -> set[int]:
    """Finds the tokens that would complete an n-gram of ``size`` tokens a second time.

    Source: Paulus et al. 2017, "A Deep Reinforced Model for Abstractive Summarization", 2.5.
    """
    before = size - 1
    last = output[len(output) - before :]
    return {
        output[index + before]
        for index in range(len(output) - before)
        if output[index : index + before] == last
    }
