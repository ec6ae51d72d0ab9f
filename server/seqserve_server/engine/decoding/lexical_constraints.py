"""Beams that are to say terms, shared out over banks.

Hypotheses that hold equally many words of the terms form a bank and compete only within it, so that
one which has just begun a term, and has lost score by it, stays.

Sources: Hokamp and Liu 2017, "Lexically Constrained Decoding for Sequence Generation Using Grid
Beam Search"; Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam
Allocation"; Hu et al. 2019, "Improved Lexically Constrained Decoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.terms import Term, begun, unmet
from seqserve_server.engine.cache import MASKED_LOGIT
from seqserve_server.engine.decoding.beam_step import Candidates
from seqserve_server.engine.decoding.processors import Distribution
from seqserve_server.engine.packing import Array


class _Bid(NamedTuple):
    """A continuation that wants a place in the beam."""

    total: float
    beam: int
    word: int


class Banks:
    """Shares out the beams of one request over its banks."""

    def __init__(self, terms: tuple[Term, ...], ends: Iterable[int]) -> None:
        """Takes the terms.

        Args:
            terms: The words of each, at least one.
            ends: Words that end a hypothesis.
        """
        self._terms = terms
        self._ends = frozenset(ends)
        self.count = 1 + sum(len(term) for term in terms)
        """One for each number of words of the terms that may have been said."""

    def candidates(
        self, scores: Array, found: Sequence[Distribution], said: Sequence[list[int]]
    ) -> Candidates:
        """Ranks the continuations of all beams, each bank by itself.

        Args:
            scores: Of the beams, ``[B]``.
            found: What may come next after each.
            said: What each has said.

        Returns:
            At most ``2 B``, ``[1, N]``; the first ``B``, best first, are to go on.
        """
        beams = len(scores)
        # Words that end may be struck out below: as many more are listed, so that 2 B are left.
        most = 2 * beams + len(self._ends)
        bids = [
            _Bid(float(scores[beam]) + after.log_probability(word), beam, word)
            for beam, (after, before) in enumerate(zip(found, said, strict=True))
            for word in {*after.best(most).token_ids.tolist(), *self._wanted(before)}
        ]
        bids = [bid for bid in bids if bid.total > MASKED_LOGIT / 2]
        # Where nothing else is left to say, one ends without its terms.
        bids = [bid for bid in bids if self._may_come(said[bid.beam], bid.word)] or bids
        banks: list[list[_Bid]] = [[] for _ in range(self.count)]
        for bid in bids:
            banks[self._bank([*said[bid.beam], bid.word])].append(bid)
        dealt = _dealt(banks, 2 * beams)
        order = [*sorted(dealt[:beams], reverse=True), *dealt[beams:]]
        totals, parents, words = zip(*order, strict=True) if order else [()] * 3
        log_probabilities = [found[bid.beam].log_probability(bid.word) for bid in order]
        parts = (parents, words, log_probabilities, totals)
        return Candidates(*(np.array(part)[None] for part in parts))

    def _wanted(self, words: list[int]) -> list[int]:
        """Lists the words that would bring a term forward."""
        terms = (self._terms[number] for number in unmet(self._terms, words))
        return [term[begun(words, term)] for term in terms]

    def _may_come(self, words: list[int], word: int) -> bool:
        """Tells whether a word may come next: no hypothesis ends without its terms."""
        return word not in self._ends or not unmet(self._terms, words)

    def _bank(self, words: list[int]) -> int:
        """Counts the words of the terms that are met, and those of one that is begun."""
        left = {number: self._terms[number] for number in unmet(self._terms, words)}
        met = sum(len(term) for number, term in enumerate(self._terms) if number not in left)
        return met + max((begun(words, term) for term in left.values()), default=0)


def _dealt(banks: list[list[_Bid]], count: int) -> list[_Bid]:
    """Gives each bank in turn its best, the fullest first, until there are ``count``."""
    ranked = [sorted(bank) for bank in reversed(banks)]
    dealt: list[_Bid] = []
    while len(dealt) < count and any(ranked):
        dealt += [bank.pop() for bank in ranked if bank]
    return dealt[:count]
