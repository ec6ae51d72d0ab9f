"""Runs the rows of one cache: drops and admits requests, then steps all rows by one token."""

import time
from functools import partial

import numpy as np

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, ServiceError, Stage
from seqserve_server.contract.events import Failed, Finished, Progress
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Detokenize
from seqserve_server.engine.decoding.search import Search
from seqserve_server.engine.encoding import SourceEncoder
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.packing import Array, CrossKV, EncodedSource
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.row_table import RowTable
from seqserve_server.engine.runtime import Runtime

_IDLE_TURNS = 4
"""Turns without a row after which no request is expected at once."""


class Worker:
    """Rows in the leading slots of a cache, and their requests."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        slots: int,
        max_source_tokens: int,
        observer: Observer,
        detokenize: Detokenize,
        *,
        number: int = 0,
        idle_s: float = 0.05,
    ) -> None:
        """Allocates the slots; between two steps it encodes ``max_source_tokens``."""
        self._scheduler, self._number = scheduler, number
        encoding = runtime.encoding_limits(max_source_tokens)
        self._max_source_tokens = encoding.budget_tokens
        self._encoder = SourceEncoder(runtime, scheduler, encoding, observer, number)
        self._observer = observer
        self._idle_s = idle_s
        self._runtime = runtime
        self._cache = SlotCache(runtime, slots)
        self._warm_up_steps = runtime.warm_up_steps(slots)
        self._step_rows = partial(runtime.step_rows, slots=slots)
        self._search = Search(
            self._cache, runtime.manifest, detokenize, runtime.shortlist, runtime.draft_reader
        )
        self._rows = RowTable()
        # Running requests that report progress, and those whose steps compute log-probabilities.
        self._streaming: set[Request] = set()
        self._scoring: set[Request] = set()
        self._joining: list[Request] = []
        self._without_token: list[Request] = []
        # An attribute, so that a fault later in the step loses no event.
        self._events: Events = []
        self._runtime_s = 0.0
        self._idle_turns = 0

    @property
    def cache_bytes(self) -> int:
        """Bytes of keys, values and recurrent states."""
        return self._cache.bytes

    def warm_up(self, cross_kv: CrossKV, candidates: Array | None = None) -> None:
        """Steps several numbers of rows, over ``candidates`` or all tokens, then empties them."""
        self._runtime.warm_up()
        for rows, return_logprobs in self._warm_up_steps:
            # From the start each time, so that no row outgrows the shortest maximum length.
            for row in range(rows):
                self._cache.join(row, cross_kv, 0)
                self._cache.limit(row, candidates)
            self._cache.advance(rows, return_logprobs=return_logprobs)
        if self._cache.slots > 1:
            # Compiles the kernel that copies rows on a GPU, so that no caller waits for it.
            self._cache.branch(np.array([0]), np.array([1]), np.array([0]))
            self._cache.move(1, 0)
        for row in range(self._cache.slots):
            self._cache.release(row)
        self._cache.clear()

    def step(self) -> Events:
        """Drops rows that must leave, admits requests, and runs one step; returns its events."""
        if not self._rows.busy:
            self._scheduler.wait_for_work(self._idle_s, self._number)
        began_s = time.perf_counter()
        self._runtime_s = 0.0
        self._drop(time.monotonic())
        self._admit()
        self._rows.compact(self._search.move, self._step_rows)
        if rows := self._rows.busy:
            self._cache.empty(self._rows.holes)
            self._advance(rows)
            self._verify_draft()
            duration_s = time.perf_counter() - began_s
            self._observer.stepped(rows, duration_s, duration_s - self._runtime_s)
            self._idle_turns = 0
        else:
            self._idle_turns += 1
            if self._idle_turns > _IDLE_TURNS:
                self._runtime.use_idle_time()
        return self._take_events()

    def fail(self, error: ServiceError) -> Events:
        """Ends every request with an error; returns also the events from before the fault."""
        # A request that was about to join may have rows already.
        ended = list(dict.fromkeys([*self._rows.running(), *self._joining]))
        self._end(ended, answered=False)
        self._vacate(self._rows.rows_of(ended))
        for each in (self._rows, self._joining, self._without_token):
            each.clear()
        self._events += [(request, Failed(error)) for request in ended]
        return self._take_events()

    def _take_events(self) -> Events:
        events, self._events = self._events, []
        return events

    def _drop(self, now_s: float) -> None:
        for request in self._scheduler.expire(now_s):
            self._events.append((request, request.expired(now_s)))
        gone = self._scheduler.take_cancelled(self._rows.requests)
        for request in gone:
            request.count_tokens(self._search.interrupt(request))
            self._observer.cancelled(request)
        late = self._rows.late(now_s, gone)
        for request in late:
            request.count_tokens(self._search.interrupt(request))
            self._events.append((request, Failed(DeadlinePassed(Stage.DECODE))))
        gone += late
        if gone:
            self._vacate(self._rows.rows_of(gone))
            self._end(gone, answered=False)

    def _admit(self) -> None:
        """Assigns free slots to new requests, within the budget of sources to encode."""
        busy = self._rows.busy
        if self._encoder.waits_for_company(busy):
            return
        new = self._scheduler.take(
            busy=busy,
            free=self._cache.slots - busy,
            budget_tokens=self._max_source_tokens,
            worker=self._number,
        )
        if not new:
            return
        now_s = time.monotonic()
        for request in new:
            request.timeline.encode_began_s = now_s
        # Known before they have a row, so that a fault while they are encoded ends them too.
        self._joining += new
        sources = [request for request in new if request.encoded is None]
        if sources:
            self._runtime_s += self._encoder.encode(sources)
        for request in new:
            if request.encoded is not None:
                self._join(request, request.encoded)
            else:
                self._joining.remove(request)
                error = EngineFault("the source could not be encoded")
                self._events.append((request, Failed(error)))
                self._scheduler.finish([request], answered=False)

    def _join(self, request: Request, source: EncodedSource) -> None:
        spec = request.generate
        rows = self._rows.take(request)
        joining = rows if len(rows) > 1 else rows[0]
        self._cache.join(joining, source.cross_kv, source.index, spec.start_token)
        request.encoded = None
        self._search.join(rows, request)
        self._joining.remove(request)
        self._without_token.append(request)
        if spec.reports_progress:
            self._streaming.add(request)
        if spec.options.return_scores or not spec.options.is_plain:
            self._scoring.add(request)
        request.timeline.encode_ended_s = time.monotonic()

    def _advance(self, busy: int) -> None:
        rows = len(self._rows)
        began_s = time.perf_counter()
        self._cache.advance(rows, return_logprobs=bool(self._scoring))
        self._runtime_s += time.perf_counter() - began_s
        ended = self._search.advance(rows)
        now_s = time.monotonic()
        if self._without_token:
            for request in self._without_token:
                request.timeline.first_token_s = now_s
                request.timeline.batch_rows = busy
            self._observer.first_tokens(self._without_token)
            self._without_token = []
        if ended.rows:
            self._vacate(ended.rows)
        if over := self._rows.over_limit(now_s):
            answers = [(request, self._search.interrupt(request)) for request in over]
            self._vacate(self._rows.rows_of(over))
            self._finish(answers, now_s)
        if self._streaming:
            self._report_progress()
        if ended.finished:
            self._finish(ended.finished, now_s)

    def _verify_draft(self) -> None:
        """Appends the correct tokens of its draft to one row, and handles its end."""
        began_s = time.perf_counter()
        verified = self._search.verify_draft()
        if verified is None:
            return
        self._runtime_s += time.perf_counter() - began_s
        self._observer.drafted(verified.drafted, verified.accepted)
        request, tokens = verified.request, verified.token_ids
        if verified.finished:
            # The last one comes with the answer.
            tokens = tokens[:-1]
            self._vacate([verified.row])
        if tokens and request in self._streaming:
            self._events.append((request, Progress(tokens)))
        self._finish(verified.finished, time.monotonic())

    def _report_progress(self) -> None:
        """Reports the new token of streamed rows; the last one comes with the answer."""
        for row, request in enumerate(self._rows.requests):
            if request and request in self._streaming:
                self._events.append((request, Progress([self._search.last_token(row)])))

    def _finish(self, finished: list[tuple[Request, Finished]], now_s: float) -> None:
        for request, answer in finished:
            request.count_tokens(answer)
            request.timeline.finished_s = now_s
            self._events.append((request, answer))
        self._end([request for request, _ in finished])

    def _vacate(self, rows: list[int]) -> None:
        for row in rows:
            self._search.leave(row)
        self._rows.vacate(rows)

    def _end(self, requests: list[Request], *, answered: bool = True) -> None:
        self._streaming.difference_update(requests)
        self._scoring.difference_update(requests)
        self._scheduler.finish(requests, answered=answered)
