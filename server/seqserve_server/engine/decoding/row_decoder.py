"""Greedy search and sampling: each row chooses its next token independently.

For most rows the graph has chosen already, or has listed the tokens to sample among, and they
advance as arrays. Rows whose requests ask for more are inspected one by one.
"""

import numpy as np

from seqserve_server.contract.events import Finished, TopTokens
from seqserve_server.engine.decoding.hypotheses import FinishedHypothesis
from seqserve_server.engine.decoding.logits import Distribution
from seqserve_server.engine.decoding.proposals import proposal_of
from seqserve_server.engine.decoding.rows import NEVER, Rows, RowState
from seqserve_server.engine.decoding.sampling import (
    sample,
    sample_all,
    sorted_for_sampling,
)
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request

_NONE = np.empty(0, np.int64)


class RowDecoder:
    """One hypothesis a row. Rows of beam searches are left alone."""

    def __init__(self, rows: Rows, eos: int) -> None:
        self._rows = rows
        self._eos = eos
        self._all_rows = np.arange(rows.cache.slots)

    def advance(self, count: int) -> tuple[list[int], list[tuple[Request, Finished]]]:
        """Chooses tokens of the ``count`` leading rows; returns rows done, rising, and answers."""
        rows, cache = self._rows, self._rows.cache
        if not rows.num_without_beam:
            return [], []
        lengths, tokens = cache.lengths[:count], cache.tokens[:count, 0]
        inspected: list[int] = []
        if rows.num_special:
            inspected = (lengths >= rows.inspected_from[:count]).nonzero()[0].tolist()
        if cache.returned_logprobs:
            self._score(lengths, tokens, inspected)
        else:
            self._force_ends(lengths, tokens)
            rows.append_best(count, lengths, tokens)
        done = (tokens == self._eos) | (lengths >= rows.max_lengths[:count])
        if rows.num_without_beam < count:
            done &= rows.has_no_beam[:count]
        for row in inspected:
            done[row] = self._ends(row, int(lengths[row]))
        ended: list[int] = done.nonzero()[0].tolist()
        return ended, [answer for row in ended for answer in self._finish(row)]

    def extend(
        self, row: int, tokens: list[int], log_probabilities: list[float]
    ) -> tuple[int, list[tuple[Request, Finished]]]:
        """Appends tokens to the only row of a request without a step, up to its end.

        Returns how many it has taken, and the request where it is answered.
        """
        rows, state = self._rows, self._rows.states[row]
        pairs = zip(tokens, log_probabilities, strict=True)
        for count, (token, log_probability) in enumerate(pairs, 1):
            length = rows.cache.append(row, token)
            rows.tokens[row, length - 1] = token
            rows.log_probabilities[row, length - 1] = log_probability
            rows.scores[row] += log_probability
            if state.constraints.end(rows.output(row, length)):
                return count, self._finish(row)
        return len(tokens), []

    def _score(self, lengths: Array, tokens: Array, inspected: list[int]) -> None:
        """Changes ``tokens [R]`` if options require it; keeps log-probabilities and scores."""
        rows, count = self._rows, len(tokens)
        log_probabilities = rows.cache.log_probabilities[:count].astype(np.float64)
        if rows.num_special:
            if (sampling := rows.samples[:count].nonzero()[0]).size:
                self._sample(sampling, tokens, log_probabilities)
            if (sampling := rows.samples_all[:count].nonzero()[0]).size:
                self._sample_all(sampling, tokens, log_probabilities)
        for row in inspected:
            if rows.states[row].needs_proposals:
                self._choose(row, tokens, log_probabilities)
        log_probabilities[self._force_ends(lengths, tokens)] = 0.0
        rows.append(self._all_rows[:count], lengths, tokens, log_probabilities)
        # Forced tokens have no log-probability.
        added = np.nan_to_num(log_probabilities) if inspected else log_probabilities
        scores = rows.scores[:count]
        np.add(scores, added, out=scores, where=rows.has_no_beam[:count])

    def _force_ends(self, lengths: Array, tokens: Array) -> Array:
        """Sets the end token at the maximum length of rows with that option; returns these rows."""
        rows, count = self._rows, len(tokens)
        if not rows.num_forced_ends:
            return _NONE
        ends = rows.forced_ends[:count]
        is_longest = (lengths >= rows.max_lengths[:count]) & rows.has_no_beam[:count]
        forced: Array = (is_longest & (ends >= 0)).nonzero()[0]
        tokens[forced] = ends[forced]
        return forced

    def _sample(self, sampling: Array, tokens: Array, log_probabilities: Array) -> None:
        rows, cache = self._rows, self._rows.cache
        listed, listed_probabilities = cache.top_tokens(sampling)  # [R, K]
        params = rows.sampling.of(sampling)
        columns = sample(listed_probabilities, params, self._random(sampling))
        chosen = self._all_rows[: len(sampling)], columns
        tokens[sampling] = listed[chosen]
        log_probabilities[sampling] = listed_probabilities[chosen]

    def _sample_all(self, sampling: Array, tokens: Array, log_probabilities: Array) -> None:
        """Samples for all rows that do so among all tokens, or among all of their candidates."""
        cache, limited = self._rows.cache, []
        for row in sampling.tolist():
            if candidates := cache.candidates(row):
                limited.append(row)
                only, (columns, logits) = self._all_rows[row : row + 1], candidates
                [column], [below] = self._sampled(only, logits[None])
                tokens[row] = columns[column]
                log_probabilities[row] -= below
        free = np.setdiff1d(sampling, limited) if limited else sampling
        if free.size:
            tokens[free], below = self._sampled(free, cache.logits(free))
            # So far it is the log-probability of the best token.
            log_probabilities[free] -= below

    def _sampled(self, rows: Array, values: Array) -> tuple[Array, Array]:
        return sample_all(values, self._rows.sampling.of(rows), self._random(rows))

    def _random(self, rows: Array) -> Array:
        numbers: Array = self._rows.random[rows, self._rows.cache.lengths[rows] - 1]
        return numbers

    def _choose(self, row: int, tokens: Array, log_probabilities: Array) -> None:
        state = self._rows.states[row]
        proposal = proposal_of(self._rows, row)
        state.is_improbable = proposal.is_improbable
        if proposal.next_token:
            tokens[row], log_probabilities[row] = proposal.next_token
        elif isinstance(proposal.choices, Distribution):
            column = self._column(row, state, proposal.choices.log_probabilities)
            tokens[row] = proposal.choices.token(column)
            log_probabilities[row] = proposal.choices.log_probabilities[column]
        if state.options.return_top_tokens:
            self._rows.append_top(row, TopTokens.of(proposal.top_tokens))

    def _column(self, row: int, state: RowState, log_probabilities: Array) -> int:
        """Chooses among log-probabilities ``[N]``: the best one, or one at random."""
        if not state.options.sampling:
            return int(log_probabilities.argmax())
        only = self._all_rows[row : row + 1]
        if not state.options.sampling.is_ranked:
            return int(self._sampled(only, log_probabilities[None])[0][0])
        columns = sorted_for_sampling(log_probabilities, state.options.sampling)
        params = self._rows.sampling.of(only)
        [chosen] = sample(log_probabilities[None, columns], params, self._random(only))
        return int(columns[chosen])

    def _ends(self, row: int, length: int) -> bool:
        """Returns whether an inspected row ends here; if not, masks what must not come next."""
        state = self._rows.states[row]
        output, options = self._rows.output(row, length), state.options
        if state.is_improbable or state.constraints.end(output):
            return True
        if options.may_suppress:
            self._rows.suppress(row, output)
        if not (options.is_inspected or options.suppression_depends_on_output):
            # Only its shortest length was in the way.
            self._rows.inspected_from[row] = NEVER
        return False

    def _finish(self, row: int) -> list[tuple[Request, Finished]]:
        """Adds a row's hypothesis to its request; gives the answer with the last one."""
        state = self._rows.states[row]
        if state.is_improbable:
            return state.pool.add([])
        hypothesis = self._rows.hypothesis(row, int(self._rows.cache.lengths[row]))
        end = state.constraints.end(hypothesis.token_ids)
        assert end is not None
        finished = FinishedHypothesis.of(hypothesis, end, state.options)
        return state.pool.add([_ranked(state, finished)])

    def interrupt(self, rows: list[int]) -> list[FinishedHypothesis]:
        """Returns the hypotheses that some rows have so far."""
        hypotheses = []
        for row in rows:
            state, length = self._rows.states[row], int(self._rows.cache.lengths[row])
            if state.index and state.options.is_within_shared_prefix(length):
                # All alternatives are one until their own first token.
                continue
            cut = FinishedHypothesis.cut(self._rows.hypothesis(row, length), state.options)
            hypotheses.append(_ranked(state, cut))
        return hypotheses


def _ranked(state: RowState, finished: FinishedHypothesis) -> FinishedHypothesis:
    is_alternative = state.options.return_alternatives
    return finished.as_alternative(state.index) if is_alternative else finished
