"""Constraints of a hypothesis: tokens that must not or must come next, and its end."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import numpy as np

from seqserve_server.contract.events import StopReason
from seqserve_server.contract.options import (
    ANY_TOKEN,
    BEGIN,
    DecodingOptions,
    TokenIds,
    matched_prefix,
    missing_terms,
)
from seqserve_server.engine.decoding.beam_step import Continuations
from seqserve_server.engine.decoding.logits import Distribution
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

Detokenize: TypeAlias = Callable[[Sequence[int]], str]


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
        self._options = options
        self.end_ids = frozenset(options.end_ids or (eos,))
        """Tokens that end a hypothesis."""
        self.forced_end = options.end_ids[0] if options.end_ids else eos
        """Token that ends a hypothesis of the maximum length, if the request wants one."""
        self._detokenize = detokenize
        self._candidates = candidates
        # The tokens that must not come after others: after each of these, once they are the last.
        self._suppressed: defaultdict[TokenIds, set[int]] = defaultdict(set)
        for *before, token in options.suppressed:
            self._suppressed[tuple(before)].add(token)
        self._lengths_before = {len(before) for before in self._suppressed}
        is_forced = options.stops and options.prefix and not options.prefix_bias_beta
        # Characters of a forced prefix, which no stop sequence cuts.
        self._prefix_characters = len(detokenize(options.prefix)) if is_forced else 0

    def suppressed(self, output: list[int]) -> list[int]:
        """Lists the tokens that must not come after ``output``.

        A hypothesis with nothing left to generate may end, whatever suppresses its end.
        """
        options = self._options
        suppressed: set[int] = set()
        whole = (BEGIN, *output)
        befores = [whole[max(0, len(whole) - length) :] for length in self._lengths_before]
        for before in [*befores, (ANY_TOKEN,)] if output else befores:
            suppressed |= self._suppressed.get(before, set())
        if options.no_repeat_ngram_size:
            suppressed |= _repeating(output, options.no_repeat_ngram_size)
        is_short = len(output) < options.min_decoding_length
        if is_short and self._leaves_some(suppressed | self.end_ids):
            suppressed |= self.end_ids
        elif not self._leaves_some(suppressed):
            suppressed -= self.end_ids
        return sorted(suppressed)

    def _leaves_some(self, suppressed: set[int]) -> bool:
        is_fewer = len(suppressed) < len(self._candidates)
        return is_fewer or not suppressed.issuperset(self._candidates)

    def forced(self, length: int) -> int | None:
        """Returns the token of the prefix after ``length`` tokens; None after its end."""
        prefix = self._options.prefix
        is_free = length >= len(prefix) or self._options.prefix_bias_beta
        return None if is_free else prefix[length]

    def end(self, token_ids: list[int]) -> End | None:
        """Returns whether tokens are a complete hypothesis, and how many of them count."""
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
        for count in range(len(token_ids)):
            if self._detokenize(token_ids[:count]).startswith(text):
                return count
        return len(token_ids)


def _repeating(output: list[int], size: int) -> set[int]:
    """Finds the tokens that would complete an n-gram a second time.

    Source: Paulus et al. 2017, "A Deep Reinforced Model for Abstractive Summarization", 2.5.
    """
    before = size - 1
    last = output[len(output) - before :]
    return {
        output[index + before]
        for index in range(len(output) - before)
        if output[index : index + before] == last
    }


class _Continuation(NamedTuple):
    total: float
    beam: int
    token: int


class LexicalConstraints:
    """Shares out the beams of one request over its banks."""

    def __init__(self, terms: tuple[TokenIds, ...], end_ids: Iterable[int]) -> None:
        self._terms = terms
        self._tokens = frozenset(chain(*terms))
        self._end_ids = frozenset(end_ids)
        self.num_banks = 1 + sum(len(term) for term in terms)
        """One for each number of tokens of the terms that a hypothesis can hold."""

    def continuations(
        self, scores: Array, distributions: Sequence[Distribution], outputs: Sequence[list[int]]
    ) -> Continuations:
        """Ranks the continuations of beams with scores ``[B]``, separately for each bank.

        Returns at most ``2 B``; the first ``B``, best first, go on.
        """
        beams = len(scores)
        # End tokens may be struck out below: as many more are listed, so that 2 B are left.
        count = 2 * beams + len(self._end_ids)
        listed = [
            _Continuation(float(scores[beam]) + distribution.log_probability(token), beam, token)
            for beam, (distribution, output) in enumerate(zip(distributions, outputs, strict=True))
            for token in {*distribution.top(count).token_ids.tolist(), *self._next_tokens(output)}
        ]
        listed = [each for each in listed if each.total > MASKED_LOGIT / 2]
        # Where nothing else is left to generate, a hypothesis ends without its terms.
        may_come = [
            each
            for each in listed
            if each.token not in self._end_ids or not missing_terms(self._terms, outputs[each.beam])
        ]
        listed = may_come or listed
        banks: list[list[_Continuation]] = [[] for _ in range(self.num_banks)]
        met = [self._met(missing_terms(self._terms, output)) for output in outputs]
        for each in listed:
            # Any other token breaks off a term that has begun.
            is_of_term = each.token in self._tokens
            bank = self._bank([*outputs[each.beam], each.token]) if is_of_term else met[each.beam]
            banks[bank].append(each)
        dealt = _round_robin(banks, 2 * beams)
        order = [*sorted(dealt[:beams], reverse=True), *dealt[beams:]]
        totals, parents, tokens = zip(*order, strict=True) if order else [()] * 3
        log_probabilities = [distributions[each.beam].log_probability(each.token) for each in order]
        parts = (parents, tokens, log_probabilities, totals)
        return Continuations(*(np.array(part)[None] for part in parts))

    def _next_tokens(self, output: list[int]) -> list[int]:
        terms = (self._terms[index] for index in missing_terms(self._terms, output))
        return [term[matched_prefix(output, term)] for term in terms]

    def _bank(self, output: list[int]) -> int:
        """Counts the tokens of the terms that are met, and of one that has begun."""
        missing = missing_terms(self._terms, output)
        begun = (matched_prefix(output, self._terms[index]) for index in missing)
        return self._met(missing) + max(begun, default=0)

    def _met(self, missing: Sequence[int]) -> int:
        """Counts the tokens of the terms that are not missing."""
        return sum(len(term) for index, term in enumerate(self._terms) if index not in missing)


def _round_robin(banks: list[list[_Continuation]], count: int) -> list[_Continuation]:
    """Takes the best of each bank in turn, the fullest bank first, until there are ``count``."""
    ranked = [sorted(bank) for bank in reversed(banks)]
    dealt: list[_Continuation] = []
    while len(dealt) < count and any(ranked):
        dealt += [bank.pop() for bank in ranked if bank]
    return dealt[:count]
