"""One beam search: its rows, the hypotheses it has finished, and when it is over.

The rules are CTranslate2's or, with ``early_stopping``, those of transformers' ``generate()``.
"""

import math
from bisect import insort
from typing import cast

import numpy as np

from seqserve_server.contract.events import Finished, TopTokens
from seqserve_server.engine.decoding.beam_step import (
    Continuations,
    continue_with,
    rank,
)
from seqserve_server.engine.decoding.constraints import LexicalConstraints
from seqserve_server.engine.decoding.hypotheses import FinishedHypothesis, best
from seqserve_server.engine.decoding.logits import Distribution, normalized
from seqserve_server.engine.decoding.proposals import proposal_of
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.request import Request


class BeamSearch:
    """The search of a request, or of one of its alternatives."""

    def __init__(self, rows: Rows, first: int) -> None:
        state = rows.states[first]
        self.rows = state.beams
        """Its rows, best first; empty once they have left."""
        self.pool = state.pool
        self.options = options = state.options
        self.constraints = state.constraints
        self._all_rows = rows
        self._alternative = state.index if options.return_alternatives else None
        self._finished: list[FinishedHypothesis] = []
        """Those that may be in the answer."""
        self._num_finished = 0
        self._losses: list[float] = []
        """The normalised scores of the best that have finished, negated, in a persistent search."""
        self.may_be_over = False
        """Whether it may be over after any step, not only after one that ends a hypothesis."""
        self._top_finished = self._is_improbable = False
        self._top_tokens: list[TopTokens] = []
        ends = self.constraints.end_ids
        self._terms = LexicalConstraints(options.terms, ends) if options.terms else None
        self.has_own_ends = bool(options.end_ids or options.stops or options.return_alternatives)
        """Whether more ends a hypothesis than the model's end token and the maximum length."""
        # All beams are alike at first, so that only one counts.
        rows.scores[self.rows[1:]] = -np.inf

    @property
    def _num_wanted(self) -> int:
        return self.options.num_hypotheses if self._alternative is None else 1

    @property
    def _num_enough(self) -> int:
        return max(1, math.floor(self.options.beam_size * self.options.patience + 0.5))

    def continuations(self) -> Continuations | None:
        """Ranks up to ``2 B`` continuations of an inspected search; None for the graph's."""
        proposed = [proposal_of(self._all_rows, row) for row in self.rows]
        self._top_tokens = [TopTokens.of(proposal.top_tokens) for proposal in proposed]
        self._is_improbable = proposed[0].is_improbable
        scores = self._all_rows.scores[self.rows]
        if proposed[0].next_token:
            return continue_with(scores, *proposed[0].next_token)
        if not self.options.needs_distribution:
            return None
        distributions = [cast(Distribution, proposal.choices) for proposal in proposed]
        if self._terms:
            length = int(self._all_rows.cache.lengths[self.rows[0]])
            outputs = [self._all_rows.output(row, length - 1) for row in self.rows]
            return self._terms.continuations(scores, distributions, outputs)
        listed = [distribution.top(2 * len(self.rows)) for distribution in distributions]
        tokens, log_probabilities = (np.stack(part)[None] for part in zip(*listed, strict=True))
        return rank(scores[None], tokens, log_probabilities)

    def top_tokens(self, beam: int) -> TopTokens:
        """Returns the top tokens after a beam in the last step, if they are requested."""
        return self._top_tokens[beam] if self._top_tokens else TopTokens.of()

    def ends(self, token_ids: list[int]) -> bool:
        """Returns whether tokens are a whole hypothesis."""
        return self._is_improbable or self.constraints.end(token_ids) is not None

    def add(
        self, beam: int, token: int, log_probability: float, score: float, *, is_top: bool
    ) -> None:
        """Adds a beam whose hypothesis a token has ended."""
        if self._is_improbable or score == -math.inf:
            return
        self._num_finished += 1
        self._top_finished |= is_top
        row = self.rows[beam]
        length = int(self._all_rows.cache.lengths[row])
        by_length = normalized(score, length, self.options.length_penalty)
        if self.options.is_persistent:
            insort(self._losses, -by_length)
            del self._losses[self._num_enough :]
            self.may_be_over = len(self._losses) == self._num_enough
        if self._is_beaten(by_length):
            return
        before = self._all_rows.hypothesis(row, length - 1)
        hypothesis = before.extended(token, log_probability, score, self.top_tokens(beam))
        end = self.constraints.end(hypothesis.token_ids)
        assert end is not None
        self._finished.append(FinishedHypothesis.of(hypothesis, end, self.options))

    def _is_beaten(self, score: float) -> bool:
        """Returns whether enough hypotheses with at least this score have ended earlier."""
        if self.options.terms or self.options.coverage_penalty:
            # Its rank depends on more.
            return False
        better = [each for each in self._finished if -each.rank[-1] >= score]
        return len(better) >= self._num_wanted

    def is_over(self, length: int, best_score: float) -> bool:
        """Returns whether the search is complete, with hypotheses of this length.

        ``best_score`` is the best score of growing hypotheses; minus infinity without any.
        """
        options, count = self.options, self._num_finished
        if best_score == -math.inf:
            return True
        if length >= options.max_decoding_length or options.is_branching_token(length):
            return True
        if options.is_persistent:
            penalty = options.length_penalty
            # How long a growing hypothesis may become.
            if options.early_stopping == "never" and penalty > 0:
                length = options.max_decoding_length
            hope = normalized(best_score, length, penalty)
            return self.may_be_over and hope <= -self._losses[-1]
        if self._terms:
            # Only those end that hold all terms: one bank of many.
            return count >= max(self._num_wanted, round(self._num_enough / self._terms.num_banks))
        waits = options.early_stopping or options.length_penalty or options.coverage_penalty
        if options.patience == 1.0 and not waits:
            # Without a penalty no later hypothesis can be better than one that ends on top.
            return self._top_finished and count >= self._num_wanted
        return count >= self._num_enough

    def close(self) -> list[tuple[Request, Finished]]:
        """Hands over what it has found; gives the answer where it was the last search."""
        return self.pool.add(self._found())

    def interrupt(self, length: int) -> list[FinishedHypothesis]:
        """Returns what it has found, and what its beams have so far."""
        if self._alternative and self.options.is_within_shared_prefix(length):
            # All alternatives are one until their own first token.
            return []
        going = (self._all_rows.hypothesis(row, length) for row in self.rows)
        self._finished += [
            FinishedHypothesis.cut(partial, self.options)
            for partial in going
            if partial.score > -math.inf
        ]
        return self._found()

    def _found(self) -> list[FinishedHypothesis]:
        if self._alternative is None:
            return self._finished
        return [each.as_alternative(self._alternative) for each in best(self._finished, 1)]
