"""Rows that go on by themselves: each says the best word, or one drawn at random.

For most of them the graph has chosen already, or has listed what to draw among, and they advance as
arrays. Rows that ask for more are looked at one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Constraints
from seqserve_server.engine.decoding.hypotheses import Ended, HypothesisPool
from seqserve_server.engine.decoding.logits import Ranking
from seqserve_server.engine.decoding.processors import Distribution, Distributions, alternative
from seqserve_server.engine.decoding.sampling import Samplings, drawn, ordered
from seqserve_server.engine.decoding.token_buffer import TokenBuffer
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request


@dataclass(slots=True, eq=False)
class _Row:
    answer: HypothesisPool
    number: int
    """Which of the request's hypotheses it is."""
    dropped: bool = False
    """Whether it is an alternative that is too improbable."""


class RowDecoder:
    """One hypothesis a row. Rows of other searches are passed over."""

    def __init__(
        self, cache: SlotCache, history: TokenBuffer, steps: Distributions, eos: int, longest: int
    ) -> None:
        """Begins with no row.

        Args:
            cache: Whose rows it reads, and tells what to say.
            history: Of all rows.
            steps: What steps find.
            eos: Id of the end token.
            longest: Most words of a target.
        """
        self._cache = cache
        self._history = history
        self._steps = steps
        self._eos = eos
        self._rows: dict[int, _Row] = {}
        self._guided: dict[int, _Row] = {}
        # Rows that may not end yet, and are not guided.
        self._held: set[int] = set()
        slots = cache.slots
        self._all = np.arange(slots)
        self._mine = np.zeros(slots, np.bool_)
        self._scores = np.zeros(slots)
        self._longest = np.zeros(slots, np.int32)
        self._draws = np.zeros(slots, np.bool_)
        self._samplings = Samplings.empty(slots)
        self._numbers = np.zeros((slots, longest))
        self._arrays = (
            self._mine,
            self._scores,
            self._longest,
            self._draws,
            self._numbers,
            *self._samplings,
        )

    def join(self, rows: list[int], request: Request, constraints: Constraints) -> None:
        """Starts the rows of a request, one for each hypothesis."""
        options = request.options
        answer = HypothesisPool(request, constraints, len(rows))
        for number, row in enumerate(rows):
            self._rows[row] = entry = _Row(answer, number)
            self._mine[row] = True
            self._scores[row] = 0.0
            self._longest[row] = options.max_decoding_length
            if options.sampling:
                self._begin_drawing(row, options, number)
            if options.is_guided or options.bans_depend_on_history:
                self._guided[row] = entry
            elif options.may_ban:
                self._held.add(row)
            self._ban(row, [])

    def _begin_drawing(self, row: int, options: DecodingOptions, number: int) -> None:
        assert options.sampling is not None
        # Each hypothesis draws numbers of its own, so that no other row has a part in them.
        random = np.random.default_rng([options.sampling.seed, number])
        forced = 0 if options.prefix_bias_beta else len(options.prefix)
        free = options.max_decoding_length - forced
        self._numbers[row, forced:][:free] = random.random(free)
        self._samplings.put(row, options.sampling)
        self._draws[row] = not options.needs_distribution

    def leave(self, row: int) -> None:
        """Forgets a row."""
        self._rows.pop(row, None)
        self._guided.pop(row, None)
        self._held.discard(row)
        self._mine[row] = self._draws[row] = False

    def move(self, source: int, target: int) -> None:
        """Brings one row to the place of another, which has left."""
        self._rows[target] = self._rows[source]
        if source in self._guided:
            self._guided[target] = self._guided[source]
        if source in self._held:
            self._held.add(target)
        for array in self._arrays:
            array[target] = array[source]
        self.leave(source)

    def advance(self, rows: int) -> tuple[list[int], list[tuple[Request, Finished]]]:
        """Takes in the words of the step just run.

        Args:
            rows: How many leading rows ran.

        Returns:
            The rows that are done, in rising order, and the requests that have their answer.
        """
        if not self._rows:
            return [], []
        lengths, mine = self._cache.lengths[:rows], self._mine[:rows]
        words = self._cache.tokens[:rows, 0]
        log_probabilities = self._cache.log_probabilities[:rows].astype(np.float64)
        if self._draws[:rows].any():
            self._draw(words, log_probabilities)
        for row in self._guided:
            self._guide(row, words, log_probabilities)
        self._history.say(self._all[:rows], lengths, words, log_probabilities)
        # Words that are forced have none.
        found = np.nan_to_num(log_probabilities) if self._guided else log_probabilities
        self._scores[:rows] += found
        done = ((words == self._eos) | (lengths >= self._longest[:rows])) & mine
        for row in self._guided:
            done[row] = self._is_done(row)
        if self._held:
            self._release(lengths)
        ended: list[int] = done.nonzero()[0].tolist()
        return ended, [answer for row in ended for answer in self._finish(row)]

    def _draw(self, words: Array, log_probabilities: Array) -> None:
        """Draws for all rows that do so among the best words of the graph."""
        rows = self._draws.nonzero()[0]
        listed, scores = self._cache.best(rows)
        numbers = self._numbers[rows, self._cache.lengths[rows] - 1]
        places = drawn(scores, self._samplings.of(rows), numbers)
        chosen = self._all[: len(rows)], places
        words[rows], log_probabilities[rows] = listed[chosen], scores[chosen]

    def _guide(self, row: int, words: Array, log_probabilities: Array) -> None:
        """Chooses for a row that asks for more."""
        entry, length = self._guided[row], int(self._cache.lengths[row])
        options = entry.answer.options
        forced = entry.answer.constraints.forced(length - 1)
        if forced is not None:
            words[row], log_probabilities[row] = forced, math.nan
            self._note(row, options, [])
            return
        begins = options.is_branching_token(length)
        if not (options.needs_distribution or options.return_top_tokens or begins):
            return
        found = self._steps.of(row, options)
        self._note(row, options, found.ranking(options.return_top_tokens))
        if begins:
            chosen = alternative(found, entry.number, options)
            entry.dropped = chosen is None
            if chosen:
                words[row], log_probabilities[row] = chosen
        elif isinstance(found, Distribution):
            place = self._choose(row, found.log_probabilities, options, length)
            words[row] = found.word(place)
            log_probabilities[row] = found.log_probabilities[place]

    def _choose(self, row: int, found: Array, options: DecodingOptions, length: int) -> int:
        """Chooses among the log-probabilities of all words, ``[N]``."""
        if not options.sampling:
            return int(found.argmax())
        places = ordered(found, options.sampling)
        samplings = self._samplings.of(self._all[row : row + 1])
        number = self._numbers[row, length - 1 : length]
        [place] = drawn(found[None, places], samplings, number)
        return int(places[place])

    def _note(self, row: int, options: DecodingOptions, ranking: Ranking) -> None:
        if options.return_top_tokens:
            self._history.rank(row, ranking)

    def _is_done(self, row: int) -> bool:
        """Tells whether a row that asks for more ends here; bans what it must not say if not."""
        entry = self._guided[row]
        said = self._history.said(row, int(self._cache.lengths[row]))
        if entry.dropped or entry.answer.constraints.end(said):
            return True
        self._ban(row, said)
        return False

    def _release(self, lengths: Array) -> None:
        """Lets rows end that have reached their shortest length."""
        for row in [row for row in self._held if lengths[row] >= self._shortest(row)]:
            self._held.remove(row)
            self._cache.unban(row)

    def _shortest(self, row: int) -> int:
        return self._rows[row].answer.options.min_decoding_length

    def _ban(self, row: int, said: list[int]) -> None:
        answer = self._rows[row].answer
        if answer.options.may_ban:
            self._cache.ban(row, answer.constraints.bans(said))

    def interrupt(self, request: Request) -> Finished:
        """Gives what a request has found so far."""
        going = {row: each for row, each in self._rows.items() if each.answer.request is request}
        answer = next(iter(going.values())).answer
        ended = []
        for row, entry in going.items():
            length = int(self._cache.lengths[row])
            if entry.number and answer.options.is_within_shared_prefix(length):
                # All alternatives are one until their own first word.
                continue
            said = self._history.partial(row, length, float(self._scores[row]))
            ended.append(_ranked(entry, Ended.cut(said, answer.options)))
        return answer.cut(ended)

    def _finish(self, row: int) -> list[tuple[Request, Finished]]:
        """Takes in the end of a row; gives the answer of its request where it was the last."""
        entry = self._rows[row]
        answer = entry.answer
        if entry.dropped:
            return answer.close([])
        said = self._history.partial(row, int(self._cache.lengths[row]), float(self._scores[row]))
        end = answer.constraints.end(said.token_ids)
        assert end is not None
        return answer.close([_ranked(entry, Ended.of(said, end, answer.options))])


def _ranked(row: _Row, ended: Ended) -> Ended:
    """Ranks what a row has said as an alternative, where it is one."""
    is_one = row.answer.options.return_alternatives
    return ended.as_alternative(row.number) if is_one else ended
