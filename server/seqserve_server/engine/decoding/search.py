"""How rows come by their next words, whatever each request has asked for."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.contract.manifest import Manifest
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.allowed_tokens import Vocabularies
from seqserve_server.engine.decoding.beam_batch import BeamBatch
from seqserve_server.engine.decoding.constraints import Constraints, Detokenize
from seqserve_server.engine.decoding.processors import Distributions
from seqserve_server.engine.decoding.row_decoder import RowDecoder
from seqserve_server.engine.decoding.step_outputs import StepOutputs, step_outputs_of
from seqserve_server.engine.decoding.token_buffer import TokenBuffer
from seqserve_server.engine.request import Request

MAX_BEAM_SIZE = MAX_TOP_K // 2
"""Hypotheses that a beam can keep: twice as many words are ranked."""

_RANKS_APART = 2


class Advance(NamedTuple):
    """What a step has ended."""

    rows: list[int]
    """Rows that are free now, in rising order."""
    finished: list[tuple[Request, Finished]]
    """Requests that have got their answer."""


class Search:
    """The searches of all rows. Rows join, move and leave with those of the cache."""

    def __init__(self, cache: SlotCache, manifest: Manifest, detokenize: Detokenize) -> None:
        """Begins with no row.

        Args:
            cache: Whose rows it reads, and tells what to say.
            manifest: Of the model.
            detokenize: Gives the text of tokens.
        """
        self._cache = cache
        self._eos = manifest.tokens.eos
        self._vocabulary_size = manifest.architecture.vocabulary_size
        self._most = min(MAX_TOP_K, self._vocabulary_size)
        self._detokenize = detokenize
        longest = manifest.limits.max_target_length + 1
        self._history = TokenBuffer(cache.slots, longest)
        self._vocabularies = Vocabularies(cache)
        self._steps = Distributions(cache, self._history, self._vocabularies)
        self._independent = RowDecoder(cache, self._history, self._steps, self._eos, longest)
        self._beams: dict[int, BeamBatch] = {}
        self._requests: dict[int, Request] = {}
        self._needs: Counter[StepOutputs] = Counter()

    def join(self, rows: list[int], request: Request) -> None:
        """Starts the rows of a request, as many as its options say."""
        options = request.options
        constraints = Constraints(options, self._eos, self._vocabulary_size, self._detokenize)
        # All that leaving takes back is counted before anything can fail.
        self._requests.update(dict.fromkeys(rows, request))
        if not options.is_plain:
            needs = step_outputs_of(options)
            self._needs[needs] += len(rows)
            if self._needs[needs] == len(rows):
                self._ask()
        self._vocabularies.join(options.vocabulary, len(rows))
        self._search(request).join(rows, request, constraints)

    def _search(self, request: Request) -> RowDecoder | BeamBatch:
        size = request.options.beam_size
        if size == 1:
            return self._independent
        if size not in self._beams:
            self._beams[size] = BeamBatch(size, self._cache, self._history, self._steps, self._eos)
        return self._beams[size]

    def move(self, source: int, target: int) -> None:
        """Brings a row to the place of one that has left."""
        request = self._requests[target] = self._requests.pop(source)
        self._history.branch([source], [target], int(self._cache.lengths[source]))
        self._history.leave(source)
        self._search(request).move(source, target)

    def leave(self, row: int) -> None:
        """Forgets a row."""
        self._cache.unban(row)
        self._history.leave(row)
        request = self._requests.pop(row, None)
        if request is None:
            return
        self._search(request).leave(row)
        self._vocabularies.leave(request.options.vocabulary)
        if not request.options.is_plain:
            needs = step_outputs_of(request.options)
            self._needs[needs] -= 1
            if not self._needs[needs]:
                del self._needs[needs]
                self._ask()

    def word(self, row: int) -> int:
        """Gives the newest word of a row."""
        return int(self._cache.tokens[row, 0])

    def advance(self, rows: int) -> Advance:
        """Takes in the step just run over the leading ``rows`` and writes what each says next."""
        done, finished = self._independent.advance(rows)
        for beams in self._beams.values():
            free, answers = beams.advance()
            done += free
            finished += answers
        return Advance(sorted(done), finished)

    def interrupt(self, request: Request) -> Finished:
        """Gives what a request has found so far; its rows are then to leave."""
        return self._search(request).interrupt(request)

    def _ask(self) -> None:
        """Asks the next step for what the searches need."""
        ranked = max((needs.ranked for needs in self._needs), default=0)
        # Few sizes, so that few bindings are made.
        self._cache.ranked = min(-(-ranked // _RANKS_APART) * _RANKS_APART, self._most)
        self._cache.shows_scores = any(needs.shows_scores for needs in self._needs)
