"""Chooses the next token of every running row: greedy, sampling or beam.

A step of the graph gives each row its best token, and what rows need beyond that
(:mod:`step_outputs`). Logits processors (:mod:`logits`) change the probabilities of rows whose
requests ask for it; a chooser takes the next token: :mod:`row_decoder` or :mod:`beam_batch`.
"""

from itertools import chain
from typing import NamedTuple

import numpy as np

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Finished
from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.beam_batch import BeamBatch
from seqserve_server.engine.decoding.constraints import Constraints, Detokenize
from seqserve_server.engine.decoding.drafts import Drafts, Verified
from seqserve_server.engine.decoding.hypotheses import HypothesisPool
from seqserve_server.engine.decoding.row_decoder import RowDecoder
from seqserve_server.engine.decoding.rows import Rows
from seqserve_server.engine.decoding.step_outputs import RequestedOutputs, StepOutputs
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.engine.step import DraftReader

MAX_BEAM_SIZE = MAX_TOP_K // 2
"""Beams of a search: each step lists twice as many tokens."""


class Advance(NamedTuple):
    """Requests and hypotheses that a step has ended."""

    rows: list[int]
    """Rows that are free now, rising."""
    finished: list[tuple[Request, Finished]]
    """Requests that are answered."""


class Search:
    """The searches of all rows. A row joins, moves and leaves here and in the cache together."""

    def __init__(
        self,
        cache: SlotCache,
        manifest: Manifest,
        detokenize: Detokenize,
        shortlist: Shortlist | None = None,
        draft_reader: DraftReader | None = None,
    ) -> None:
        self._cache = cache
        self._eos = manifest.tokens.eos
        self._vocabulary_size = manifest.architecture.vocabulary_size
        self._detokenize = detokenize
        self._shortlist = shortlist
        self._rows = Rows(cache, manifest.limits.max_target_length + 1)
        self._outputs = RequestedOutputs(cache)
        self._row_decoder = RowDecoder(self._rows, self._eos)
        self._beams: dict[int, BeamBatch] = {}
        self._drafts = Drafts(self._rows, self._row_decoder, draft_reader)

    def join(self, rows: list[int], request: Request) -> None:
        """Starts the rows of a request, as many as its options say."""
        options, size = request.options, request.options.beam_size
        candidates = self._candidates(request)
        choices = range(self._vocabulary_size) if candidates is None else candidates
        constraints = Constraints(options, self._eos, choices, self._detokenize)
        for row in rows:
            self._cache.limit(row, candidates)
        self._rows.join(rows, HypothesisPool(request, constraints, len(rows) // size))
        outputs = StepOutputs.of(options, is_limited=candidates is not None)
        for row in rows:
            self._rows.states[row].outputs = outputs
        self._outputs.add(outputs, len(rows))
        if size > 1:
            if size not in self._beams:
                self._beams[size] = BeamBatch(size, self._rows, self._eos)
            self._beams[size].start(rows)
        if request.generate.draft and options.follows_drafts and candidates is None:
            self._drafts.put(rows[0], request.generate.draft)

    def _candidates(self, request: Request) -> Array | None:
        """Lists the tokens that a request may choose from, rising; None for all."""
        options = request.options
        if options.vocabulary:
            return np.array(options.vocabulary)
        if self._shortlist is None or not options.shortlist:
            return None
        wanted = {self._eos, *options.end_ids, *options.prefix, *chain(*options.terms)}
        return self._shortlist.candidates(request.spec.source, wanted, self._vocabulary_size)

    def move(self, source: int, target: int) -> None:
        """Moves a row into the slot of one that has left."""
        self._cache.move(source, target)
        self._rows.move(source, target)

    def leave(self, row: int) -> None:
        """Forgets a row."""
        state = self._rows.leave(row)
        if state is not None:
            if state.outputs is not None:
                self._outputs.remove(state.outputs)
            self._drafts.of_rows.pop(state, None)

    def last_token(self, row: int) -> int:
        """Returns the newest token of a row."""
        return int(self._cache.tokens[row, 0])

    def advance(self, count: int) -> Advance:
        """Takes in the step just run over the leading ``count`` rows; writes their next tokens."""
        done, finished = self._row_decoder.advance(count)
        for batch in self._beams.values():
            free, answers = batch.advance()
            done += free
            finished += answers
        if self._drafts.of_rows:
            self._drafts.take_newest_tokens()
        return Advance(sorted(done), finished)

    def verify_draft(self) -> Verified | None:
        """Appends the correct next tokens of a draft to its row, if that saves time."""
        return self._drafts.verify() if self._drafts.of_rows else None

    def interrupt(self, request: Request) -> Finished:
        """Returns what a request has found so far; its rows must leave then."""
        states = self._rows.states
        rows = [row for row, state in states.items() if state.pool.request is request]
        pool, size = states[rows[0]].pool, request.options.beam_size
        if size == 1:
            return pool.cut(self._row_decoder.interrupt(rows))
        searches = self._beams[size].searches_of(request)
        length = int(self._cache.lengths[rows[0]])
        return pool.cut(
            [hypothesis for search in searches for hypothesis in search.interrupt(length)]
        )
