"""One beam search: what it has found, and how it goes on where more is asked for than the best."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from seqserve_server.contract.events import Finished
from seqserve_server.engine.decoding.beam_step import Candidates, continued_by, ranked
from seqserve_server.engine.decoding.hypotheses import (
    Ended,
    HypothesisPool,
    PartialHypothesis,
    best,
)
from seqserve_server.engine.decoding.lexical_constraints import Banks
from seqserve_server.engine.decoding.logits import Ranking
from seqserve_server.engine.decoding.processors import Distribution, Distributions, alternative
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request


class BeamSearch:
    """The search of a request, or that of one of its alternatives."""

    def __init__(self, answer: HypothesisPool, alternative: int | None = None) -> None:
        """Begins with nothing found.

        Args:
            answer: Where its hypotheses go.
            alternative: Which of the best words after the prefix it carries on; None for all.
        """
        self.answer = answer
        """The answer that its hypotheses go into."""
        self.options = options = answer.options
        self.constraints = answer.constraints
        self._alternative = alternative
        self._ended: list[Ended] = []
        self._top_ended = self._dropped = False
        self._rankings: list[Ranking] = []
        self._banks = Banks(options.terms, self.constraints.ends) if options.terms else None
        self.has_own_ends = bool(options.end_ids or options.stops or alternative is not None)
        """Whether more ends a hypothesis than the model's end token and the longest length."""

    @property
    def _wanted(self) -> int:
        return self.options.num_hypotheses if self._alternative is None else 1

    @property
    def _enough(self) -> int:
        return max(1, math.floor(self.options.beam_size * self.options.patience + 0.5))

    def candidates(
        self, scores: Array, rows: list[int], length: int, steps: Distributions
    ) -> Candidates | None:
        """Ranks the continuations of a search that is guided.

        Args:
            scores: Of its beams, ``[B]``.
            rows: Of its beams.
            length: Words, the one now to be found counted.
            steps: What the last step has found.

        Returns:
            At most ``2 B`` of them, ``[1, N]``; None where they are those of the graph.
        """
        options = self.options
        forced = self.constraints.forced(length - 1)
        if forced is not None:
            return continued_by(scores, forced, math.nan)
        found = [steps.of(row, options) for row in rows]
        self._rankings = [each.ranking(options.return_top_tokens) for each in found]
        if self._alternative is not None and options.is_branching_token(length):
            chosen = alternative(found[0], self._alternative, options)
            self._dropped = chosen is None
            # One that is dropped ends with this word, whatever it is.
            return continued_by(scores, *(chosen or found[0].ranking(1)[0]))
        if not options.needs_distribution:
            return None
        if self._banks:
            said = [steps.said(row) for row in rows]
            return self._banks.candidates(scores, cast(list[Distribution], found), said)
        listed = [each.best(2 * len(rows)) for each in found]
        words, log_probabilities = (np.stack(part)[None] for part in zip(*listed, strict=True))
        return ranked(scores[None], words, log_probabilities)

    def ranking(self, beam: int) -> Ranking:
        """Gives the best words after a beam in the last step, where they are asked for."""
        return self._rankings[beam] if self._rankings else []

    def ends(self, words: list[int]) -> bool:
        """Tells whether words are a whole hypothesis."""
        return self._dropped or self.constraints.end(words) is not None

    def end(self, said: PartialHypothesis, on_top: bool) -> None:
        """Takes in a hypothesis that has ended.

        Args:
            said: All its words.
            on_top: Whether it is the best of its step.
        """
        if self._dropped or said.score == -math.inf:
            return
        end = self.constraints.end(said.token_ids)
        assert end is not None
        self._ended.append(Ended.of(said, end, self.options))
        self._top_ended |= on_top

    def is_over(self, length: int) -> bool:
        """Tells whether enough has ended, now that hypotheses have so many words."""
        options, count = self.options, len(self._ended)
        if length >= options.max_decoding_length or options.is_branching_token(length):
            return True
        if self._banks:
            # Only those end that have said all of them: one bank of many.
            return count >= max(self._wanted, round(self._enough / self._banks.count))
        if options.patience == 1.0 and not (options.length_penalty or options.coverage_penalty):
            # Without a penalty no later hypothesis can be better than the one that ends on top.
            return self._top_ended and count >= self._wanted
        return count >= self._enough

    def close(self) -> list[tuple[Request, Finished]]:
        """Hands over what it has found; gives the answer where it was the last to do so."""
        return self.answer.close(self._found())

    def cut(self, running: list[PartialHypothesis], length: int) -> list[Ended]:
        """Gives what it has found, and what its beams have said so far.

        Args:
            running: What each beam has said, best first.
            length: How many words that is.
        """
        if self._alternative and self.options.is_within_shared_prefix(length):
            # All alternatives are one until their own first word.
            return []
        self._ended += [Ended.cut(said, self.options) for said in running]
        return self._found()

    def _found(self) -> list[Ended]:
        if self._alternative is None:
            return self._ended
        return [each.as_alternative(self._alternative) for each in best(self._ended, 1)]
