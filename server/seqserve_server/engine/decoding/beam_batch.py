"""Beam search, all requests of one beam size at once, with the rules of CTranslate2.

At each step the best ``2 beam_size`` continuations of all beams of a request are ranked by the sum
of their log-probabilities. One of the first ``beam_size`` that ends is a finished hypothesis, and
the next continuation that does not end takes its place. Search is over when ``beam_size *
patience`` hypotheses are finished; they are ranked by their normalised scores.

Sources: Sutskever et al. 2014, section 3.2; Wu et al. 2016, section 7; Kasai et al. 2022, "A Call
for Clarity in Beam Search" (patience); CTranslate2, docs/decoding.md.
"""

from __future__ import annotations

import numpy as np

from seqserve_server.contract.events import Finished
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.beam_search import BeamSearch
from seqserve_server.engine.decoding.beam_step import Candidates, ranked, settled, succession
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.decoding.hypotheses import HypothesisPool
from seqserve_server.engine.decoding.processors import Distributions
from seqserve_server.engine.decoding.token_buffer import TokenBuffer
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request


class BeamBatch:
    """Searches that keep ``size`` hypotheses each: G searches of B beams."""

    def __init__(
        self, size: int, cache: SlotCache, history: TokenBuffer, steps: Distributions, eos: int
    ) -> None:
        """Begins with none.

        Args:
            size: Hypotheses of each.
            cache: Whose rows they read, and tell what to say.
            history: Of all rows.
            steps: What steps find.
            eos: Id of the end token.
        """
        self._size = size
        self._cache = cache
        self._history = history
        self._steps = steps
        self._eos = eos
        self._searches: list[BeamSearch] = []
        most = cache.slots // size
        self._rows = np.zeros((most, size), np.int64)
        """Of the beams, best first."""
        self._scores = np.zeros((most, size))
        """Sums of the log-probabilities of their words."""
        self._longest = np.zeros(most, np.int32)

    def join(self, rows: list[int], request: Request, constraints: Constraints) -> None:
        """Starts the searches of a request: one, or one for each alternative."""
        options, count = request.options, len(rows) // self._size
        answer = HypothesisPool(request, constraints, count)
        for number, beams in enumerate(np.reshape(rows, (count, self._size))):
            place = len(self._searches)
            self._searches.append(
                BeamSearch(answer, number if options.return_alternatives else None)
            )
            self._rows[place] = beams
            # All are alike, so that only the first one counts.
            self._scores[place] = -np.inf
            self._scores[place, 0] = 0.0
            self._longest[place] = options.max_decoding_length
            self._ban(place, 0)

    def leave(self, row: int) -> None:
        """Ends the search that a row belongs to, if it still does."""
        self._keep(~(self._rows[: len(self._searches)] == row).any(axis=1))

    def move(self, source: int, target: int) -> None:
        """Brings one row to the place of another, which has left."""
        rows = self._rows[: len(self._searches)]
        rows[rows == source] = target

    def advance(self) -> tuple[list[int], list[tuple[Request, Finished]]]:
        """Takes in the step just run.

        Returns:
            The rows that are free now, and the requests that have their answer.
        """
        if not self._searches:
            return [], []
        candidates = self._candidates()
        ends = self._ends(candidates)
        chosen = candidates.at(succession(ends, self._size))
        is_over = np.zeros(len(ends), np.bool_)
        for place in np.flatnonzero(ends[:, : self._size].any(axis=1)).tolist():
            is_over[place] = (
                self._note_ends(place, candidates.of(place), ends[place])
                # Nothing is left that may go on.
                or (chosen.totals[place] == -np.inf).all()
            )
        if not is_over.any():
            self._go_on(chosen)
            return [], []
        free: list[int] = self._rows[: len(is_over)][is_over].ravel().tolist()
        over = [self._searches[place] for place in np.flatnonzero(is_over).tolist()]
        self._keep(~is_over)
        if self._searches:
            self._go_on(chosen.of(~is_over))
        return free, [answer for search in over for answer in search.close()]

    def interrupt(self, request: Request) -> Finished:
        """Gives what the searches of a request have found so far."""
        lengths, ended = self._lengths(), []
        for place, search in enumerate(self._searches):
            if search.answer.request is not request:
                continue
            answer, length = search.answer, int(lengths[place])
            running = [
                self._history.partial(row, length, score)
                for row, score in zip(
                    self._rows[place].tolist(), self._scores[place].tolist(), strict=True
                )
                if score > -np.inf
            ]
            ended += search.cut(running, length)
        return answer.cut(ended)

    def _keep(self, going: Array) -> None:
        """Forgets searches that do not go on, ``[G]``."""
        if going.all():
            return
        left = np.flatnonzero(going)
        for array in (self._rows, self._scores, self._longest):
            array[: len(left)] = array[left]
        self._searches = [self._searches[place] for place in left]

    def _lengths(self) -> Array:
        """Words of each search, the one just found counted, ``[G]``."""
        return self._cache.lengths[self._rows[: len(self._searches), 0]]

    def _candidates(self) -> Candidates:
        """Ranks the continuations of all searches, ``[G, 2 B]``."""
        count, most = len(self._searches), 2 * self._size
        words, log_probabilities = self._cache.best(self._rows[:count])  # [G, B, K]
        found = ranked(self._scores[:count], words[..., :most], log_probabilities[..., :most])
        for place, search in enumerate(self._searches):
            if search.options.is_guided:
                rows, length = self._rows[place].tolist(), int(self._lengths()[place])
                own = search.candidates(self._scores[place], rows, length, self._steps)
                if own:
                    found.put(place, own)
        return found

    def _ends(self, candidates: Candidates) -> Array:
        """Tells which candidates are whole hypotheses, ``[G, 2 B]``.

        One that does not count is none before the longest length, so that it takes the place of
        one that is.
        """
        lengths, counts = self._lengths(), candidates.totals > -np.inf
        is_longest = lengths >= self._longest[: len(lengths)]
        ends: Array = (candidates.words == self._eos) & counts
        for place, search in enumerate(self._searches):
            if search.has_own_ends:
                own = candidates.of(place)
                said = [
                    self._history.said(row, int(lengths[place]) - 1)
                    for row in self._rows[place].tolist()
                ]
                continued = zip(own.beams.tolist(), own.words.tolist(), strict=True)
                ends[place] = counts[place] & [
                    search.ends([*said[beam], word]) for beam, word in continued
                ]
        return ends | is_longest[:, None]

    def _note_ends(self, place: int, candidates: Candidates, ends: Array) -> bool:
        """Takes in the hypotheses of a search that have ended; tells whether it is over."""
        search, length = self._searches[place], int(self._lengths()[place])
        for number in np.flatnonzero(ends[: self._size]).tolist():
            beam, word, log_probability, total = (array[number].item() for array in candidates)
            before = self._history.partial(int(self._rows[place, beam]), length - 1)
            said = before.extended(word, log_probability, total, search.ranking(beam))
            search.end(said, on_top=number == 0)
        return search.is_over(length)

    def _go_on(self, chosen: Candidates) -> None:
        """Gives each next beam, ``[G, B]``, its row and its word."""
        count, lengths = len(self._searches), self._lengths()
        moves = settled(self._rows[:count], chosen.beams)
        if len(moves.targets):
            self._cache.branch(moves.sources, moves.targets)
            self._history.branch(moves.sources, moves.targets, int(lengths.max()) - 1)
        self._rows[:count] = moves.rows
        self._scores[:count] = chosen.totals
        self._history.say(moves.rows, lengths[:, None], chosen.words, chosen.log_probabilities)
        self._cache.tokens[moves.rows, 0] = chosen.words
        for place, search in enumerate(self._searches):
            if search.options.return_top_tokens:
                for row, beam in zip(self._rows[place], chosen.beams[place], strict=True):
                    self._history.rank(row, search.ranking(beam))
            self._ban(place, int(lengths[place]))

    def _ban(self, place: int, length: int) -> None:
        """Keeps the beams of a search from what they must not say next."""
        search = self._searches[place]
        if search.options.may_ban:
            for row in self._rows[place].tolist():
                self._cache.ban(row, search.constraints.bans(self._history.said(row, length)))
