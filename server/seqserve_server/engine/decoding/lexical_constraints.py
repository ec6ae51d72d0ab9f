"""Lexical constraints: beams that must contain terms, shared out over banks.

Hypotheses that hold equally many tokens of the terms form a bank and compete only within it. So one
that has just begun a term, and has lost score by it, stays in the beam.

Sources: Hokamp and Liu 2017, "Lexically Constrained Decoding for Sequence Generation Using Grid
Beam Search"; Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam
Allocation"; Hu et al. 2019, "Improved Lexically Constrained Decoding".
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.options import Term, matched_prefix, missing_terms
from seqserve_server.engine.decoding.beam_step import Continuations
from seqserve_server.engine.decoding.distribution import Distribution
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT


class _Continuation(NamedTuple):
    """A continuation of a beam."""

    total: float
    beam: int
    token: int


class LexicalConstraints:
    """Shares out the beams of one request over its banks."""

    def __init__(self, terms: tuple[Term, ...], end_ids: Iterable[int]) -> None:
        self._terms = terms
        self._tokens = frozenset(chain(*terms))
        self._end_ids = frozenset(end_ids)
        self.num_banks = 1 + sum(len(term) for term in terms)
        """One for each number of tokens of the terms that a hypothesis can hold."""

    def continuations(
        self, scores: Array, distributions: Sequence[Distribution], outputs: Sequence[list[int]]
    ) -> Continuations:
        """Ranks the continuations of beams with scores ``[B]``, each bank by itself.

        Returns at most ``2 B``, ``[1, N]``; the first ``B``, best first, go on.
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
        may_come = [each for each in listed if self._may_come(outputs[each.beam], each.token)]
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

    def _may_come(self, output: list[int], token: int) -> bool:
        """Tells whether a token may come next: no hypothesis ends without its terms."""
        return token not in self._end_ids or not missing_terms(self._terms, output)

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
