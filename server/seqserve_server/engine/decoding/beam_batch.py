"""Beam search, all requests of one beam size at once.

Each step ranks the best ``2 beam_size`` continuations of all beams of a request by the sum of their
log-probabilities. One of the first ``beam_size`` that ends is a finished hypothesis, and the next
continuation that does not end takes its place. A search is over when ``beam_size * patience``
hypotheses are finished, or else by ``early_stopping``; they are ranked by their normalised scores.

Sources: Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7; Kasai et al. 2022, "A Call
for Clarity in Beam Search" (patience); CTranslate2, docs/decoding.md; transformers,
``GenerationMixin._beam_search`` (early_stopping).
"""

import numpy as np

from seqserve_server.contract.events import Finished
from seqserve_server.engine.decoding.beam_search import BeamSearch
from seqserve_server.engine.decoding.beam_step import (
    Continuations,
    continue_with,
    rank,
    reorder,
    select_next,
)
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request


class BeamBatch:
    """Searches that keep B hypotheses each: G searches of B beams."""

    def __init__(self, size: int, rows: Rows, eos: int) -> None:
        self._size = size
        self._rows = rows
        self._eos = eos
        self._searches: list[BeamSearch] = []

    def start(self, rows: list[int]) -> None:
        """Starts the searches of a request whose rows have joined: one, or one an alternative."""
        self._searches += [BeamSearch(self._rows, first) for first in rows[:: self._size]]

    def advance(self) -> tuple[list[int], list[tuple[Request, Finished]]]:
        """Takes in the step just run; returns the rows that are free, and the answers."""
        searches = self._searches = [search for search in self._searches if search.rows]
        if not searches:
            return [], []
        beams = np.array([search.rows for search in searches])  # [G, B]
        lengths = self._rows.cache.lengths[beams[:, 0]]  # [G]
        is_longest = lengths >= self._rows.max_lengths[beams[:, 0]]
        continuations = self._continuations(beams, is_longest)
        is_end = self._ends(continuations, lengths, is_longest)
        ended, places = is_end[:, : self._size].nonzero()
        of_ended = (part[ended, places].tolist() for part in continuations)
        for index, place, *one in zip(ended.tolist(), places.tolist(), *of_ended, strict=True):
            searches[index].add(*one, is_top=place == 0)
        # Few searches have a hypothesis that ends, as a rule, and most steps have none.
        ending = set(ended.tolist())
        if ending:
            columns = select_next(is_end, ending, self._size)
            chosen = continuations.at(columns)
        else:
            chosen = continuations.first(self._size)
        is_over = np.zeros(len(searches), np.bool_)
        for index, search in enumerate(searches):
            has_end = index in ending
            if not (has_end or search.may_be_over):
                continue
            totals = chosen.totals[index]
            if has_end and search.options.early_stopping:
                # In CTranslate2 ended ones stay where too few others are left.
                totals[is_end[index, columns[index]]] = -np.inf
            is_over[index] = search.is_over(int(lengths[index]), totals.max())
        if not is_over.any():
            self._continue(chosen, beams, lengths)
            return [], []
        over = [searches[index] for index in is_over.nonzero()[0].tolist()]
        self._searches = [searches[index] for index in (~is_over).nonzero()[0].tolist()]
        if self._searches:
            self._continue(chosen.of(~is_over), beams[~is_over], lengths[~is_over])
        free: list[int] = beams[is_over].ravel().tolist()
        return free, [answer for search in over for answer in search.close()]

    def searches_of(self, request: Request) -> list[BeamSearch]:
        """Lists the searches of a request that still run."""
        return [search for search in self._searches if search.pool.request is request]

    def _continuations(self, beams: Array, is_longest: Array) -> Continuations:
        """Ranks the continuations of all searches, ``[G, 2 B]``."""
        width = 2 * self._size
        tokens, log_probabilities = self._rows.cache.top_tokens(beams)  # [G, B, K]
        scores = self._rows.scores[beams]
        ranked = rank(scores, tokens[..., :width], log_probabilities[..., :width])
        for index, search in enumerate(self._searches):
            if search.options.is_inspected and (others := search.continuations()):
                ranked.put(index, others)
        ends = self._rows.forced_ends[beams[:, 0]]
        for index in (is_longest & (ends >= 0)).nonzero()[0].tolist():
            ranked.put(index, continue_with(scores[index], ends[index], 0.0))
        return ranked

    def _ends(self, continuations: Continuations, lengths: Array, is_longest: Array) -> Array:
        """Returns which continuations are complete hypotheses that count, ``[G, 2 B]``."""
        counts = continuations.totals > -np.inf
        ends: Array = (continuations.tokens == self._eos) & counts
        for index, search in enumerate(self._searches):
            if search.has_own_ends:
                own, length = continuations.of(index), int(lengths[index]) - 1
                outputs = [self._rows.output(row, length) for row in search.rows]
                continued = zip(own.beams.tolist(), own.tokens.tolist(), strict=True)
                ends[index] = counts[index] & [
                    search.ends([*outputs[beam], token]) for beam, token in continued
                ]
        return ends | is_longest[:, None]

    def _continue(self, chosen: Continuations, beams: Array, lengths: Array) -> None:
        """Assigns each next beam, ``[G, B]``, its row and its token."""
        rows = self._rows
        moved = reorder(beams, chosen.beams)
        if moved.targets.size:
            rows.branch(moved.sources, moved.targets, int(lengths.max()) - 1)
        rows.scores[moved.rows] = chosen.totals
        rows.append(moved.rows, lengths[:, None], chosen.tokens, chosen.log_probabilities)
        rows.cache.tokens[moved.rows, 0] = chosen.tokens
        for index, next_rows in enumerate(moved.rows.tolist()):
            search = self._searches[index]
            search.rows[:] = next_rows
            if search.options.return_top_tokens:
                for row, beam in zip(next_rows, chosen.beams[index].tolist(), strict=True):
                    rows.append_top(row, search.top_tokens(beam))
            if search.options.may_suppress:
                for row in next_rows:
                    rows.suppress(row, rows.output(row, int(lengths[index])))
