"""One worker: its slots, and the turn it takes again and again."""

from __future__ import annotations

import logging
import math
import time

from seqserve_server.contract.errors import DeadlinePassed, EngineFault, ServiceError, Stage
from seqserve_server.contract.events import (
    Event,
    Failed,
    Finished,
    Hypothesis,
    Progress,
    StopReason,
)
from seqserve_server.contract.request import Events, Request
from seqserve_server.contract.terms import unmet
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.constraints import Detokenize
from seqserve_server.engine.decoding.search import Search
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.packing import CrossKV
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.runtime import Runtime

# How long an idle worker sleeps before it looks for requests that are late.
_IDLE_S = 0.05

# Attention alone sees padding; so much longer than the shortest may a source beside it be.
_MOST_PADDED = 2

_log = logging.getLogger(__name__)


def doubling(most: int) -> list[int]:
    """Lists the sizes 1, 2, 4, .. below ``most``, and ``most``."""
    return [*(2**power for power in range((most - 1).bit_length())), most]


def grouped_by_length(requests: list[Request]) -> list[list[Request]]:
    """Groups requests whose sources are of similar length, from short to long."""
    groups: list[list[Request]] = []
    for request in sorted(requests, key=lambda request: len(request.source)):
        if groups and len(request.source) <= _MOST_PADDED * len(groups[-1][0].source):
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups


class Worker:
    """Rows in the leading slots of a cache, and the requests they belong to."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        slots: int,
        max_source_tokens: int,
        observer: Observer,
        detokenize: Detokenize,
    ) -> None:
        """Allocates the slots.

        Args:
            runtime: The model.
            scheduler: Where requests wait.
            slots: Most rows.
            max_source_tokens: Source tokens encoded between two steps while rows run.
            observer: Takes figures.
            detokenize: Gives the text of tokens.
        """
        manifest = runtime.manifest
        self._runtime = runtime
        self._scheduler = scheduler
        self._max_source_tokens = max_source_tokens
        self._observer = observer
        self._cache = SlotCache(runtime, slots)
        self._search = Search(self._cache, manifest, detokenize)
        # Lower bounds of when the next row is late. They do not rise when a row leaves, so they may
        # be too early, never too late.
        self._next_deadline_s = math.inf
        self._next_limit_s = math.inf
        self._rows: list[Request | None] = []
        # Rows that have left, the lowest last; there are none while a step runs.
        self._holes: list[int] = []
        self._streamed = 0
        self._scored = 0
        self._joining: list[Request] = []
        self._fresh: list[Request] = []
        # Kept here rather than passed on, so that a fault later in the turn loses none.
        self._events: Events = []
        self._runtime_s = 0.0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values."""
        return self._cache.bytes

    def warm_up(self, memory: CrossKV) -> None:
        """Steps with 1, 2, 4, .. rows, as many as there are slots, and leaves them empty.

        Args:
            memory: Of one source of one token.
        """
        for rows in doubling(self._cache.slots):
            # From the start each time, so that no row outgrows the shortest of targets.
            for row in range(rows):
                self._cache.join(row, memory, 0)
            self._cache.advance(rows)
        self._cache.clear()

    def turn(self) -> Events:
        """Makes room, lets new rows join, runs one step; gives what there is to tell."""
        if not self._held:
            self._scheduler.wait_for_work(_IDLE_S)
        began_s = time.perf_counter()
        self._runtime_s = 0.0
        self._drop(time.monotonic())
        self._admit()
        self._compact()
        if self._rows:
            rows = len(self._rows)
            self._step()
            duration_s = time.perf_counter() - began_s
            self._observer.stepped(rows, duration_s, duration_s - self._runtime_s)
        return self._take_events()

    @property
    def _held(self) -> int:
        return len(self._rows) - len(self._holes)

    def _running(self) -> list[Request]:
        """Lists the requests that hold rows."""
        return [request for request in dict.fromkeys(self._rows) if request]

    def assert_idle(self) -> None:
        """Checks that nothing is left of requests that have ended; for tests of leaks.

        Raises:
            AssertionError: Something is left.
        """
        self._compact()
        assert not self._rows
        self._search.assert_idle()

    def fail(self, error: ServiceError) -> Events:
        """Ends every row with an error; gives also what the turn had to tell before it failed."""
        # One that was about to join may hold rows already.
        ended = list(dict.fromkeys([*self._running(), *self._joining]))
        self._scheduler.finish(ended, answered=False)
        self._vacate([row for row, request in enumerate(self._rows) if request])
        self._rows.clear()
        self._holes.clear()
        self._joining.clear()
        self._fresh.clear()
        self._streamed = self._scored = 0
        self._events += [(request, Failed(error)) for request in ended]
        return self._take_events()

    def _take_events(self) -> Events:
        events, self._events = self._events, []
        return events

    def _drop(self, now_s: float) -> None:
        """Takes out rows and waiting requests that are cancelled or late, and what is too much."""
        for request in self._scheduler.expire(now_s):
            self._events.append((request, _unbegun(request, now_s)))
        self._events += [(one, Failed(refusal)) for one, refusal in self._scheduler.shed(now_s)]
        gone = self._scheduler.take_cancelled(self._rows)
        for request in gone:
            _note_tokens(request, self._search.interrupt(request))
            self._observer.cancelled(request)
        if now_s >= self._next_deadline_s:
            late = self._late(now_s, gone)
            for request in late:
                _note_tokens(request, self._search.interrupt(request))
                self._events.append((request, Failed(DeadlinePassed(Stage.DECODE))))
            gone += late
        if gone:
            self._vacate([row for row, request in enumerate(self._rows) if request in gone])
            self._end(gone, answered=False)

    def _late(self, now_s: float, gone: list[Request]) -> list[Request]:
        """Finds requests whose deadline has passed, and when the next one will."""
        timed = [
            (request.deadline_s, request)
            for request in self._running()
            if request.deadline_s is not None and request not in gone
        ]
        late = [request for deadline_s, request in timed if deadline_s <= now_s]
        self._next_deadline_s = min(
            (deadline_s for deadline_s, _ in timed if deadline_s > now_s), default=math.inf
        )
        return late

    def _admit(self) -> None:
        """Encodes new sources within the budget, those of similar length together."""
        held = self._held
        new = self._scheduler.take(
            held=held, free=self._cache.slots - held, budget_tokens=self._max_source_tokens
        )
        for request in new:
            request.timeline.encode_began_s = time.monotonic()
        # Known before they hold a row, so that a fault while they are encoded ends them too.
        self._joining += new
        for group in grouped_by_length(new):
            self._encode(group)

    def _encode(self, requests: list[Request]) -> None:
        """Encodes sources together; where that fails one by one, so that only the culprit does."""
        began_s = time.perf_counter()
        try:
            memory = self._runtime.encode([request.source for request in requests])
        except Exception:
            # Rows that run already have no part in it.
            if len(requests) == 1:
                _log.exception(
                    "request %s: a source of %d tokens could not be encoded",
                    requests[0].call_id,
                    len(requests[0].source),
                )
                self._refuse(requests[0])
            else:
                for request in requests:
                    self._encode([request])
            return
        duration_s = time.perf_counter() - began_s
        self._runtime_s += duration_s
        self._join(requests, memory)
        self._observer.encoded([len(request.source) for request in requests], duration_s)

    def _refuse(self, request: Request) -> None:
        self._joining.remove(request)
        self._events.append((request, Failed(EngineFault("the source could not be encoded"))))
        self._scheduler.finish([request], answered=False)

    def _join(self, requests: list[Request], memory: CrossKV) -> None:
        """Lays encoded sources into rows that others have left, or after the last."""
        for index, request in enumerate(requests):
            rows = [self._take_row(request) for _ in range(request.options.rows)]
            for row in rows:
                self._cache.join(row, memory, index)
            self._search.join(rows, request)
            if request.deadline_s is not None:
                self._next_deadline_s = min(self._next_deadline_s, request.deadline_s)
            self._next_limit_s = min(self._next_limit_s, request.limit_s)
            self._joining.remove(request)
            self._fresh.append(request)
            self._streamed += _is_streamed(request)
            self._scored += _is_scored(request)
            request.timeline.encode_ended_s = time.monotonic()

    def _take_row(self, request: Request) -> int:
        if self._holes:
            row = self._holes.pop()
            self._rows[row] = request
        else:
            row = len(self._rows)
            self._rows.append(request)
        return row

    def _compact(self) -> None:
        """Moves the last rows into what holes are left, so that a step runs over no dead row."""
        for row in self._holes:
            last = len(self._rows) - 1
            if row != last:
                self._cache.move(last, row)
                self._search.move(last, row)
                self._rows[row] = self._rows[last]
            self._rows.pop()
        self._holes.clear()

    def _step(self) -> None:
        rows = len(self._rows)
        began_s = time.perf_counter()
        self._cache.advance(rows, return_logprobs=self._scored > 0)
        self._runtime_s += time.perf_counter() - began_s
        ended = self._search.advance(rows)
        now_s = time.monotonic()
        if self._fresh:
            self._note_first_tokens(now_s, rows)
        if ended.rows:
            self._vacate(ended.rows)
        if now_s >= self._next_limit_s:
            self._interrupt(now_s)
        if self._streamed:
            self._note_progress()
        if ended.finished:
            self._finish(ended.finished, now_s)

    def _note_first_tokens(self, now_s: float, rows: int) -> None:
        for request in self._fresh:
            request.timeline.first_token_s = now_s
            request.timeline.batch_rows = rows
        self._observer.first_tokens(self._fresh)
        self._fresh = []

    def _note_progress(self) -> None:
        """Tells new words; the last one of an answer comes with the answer."""
        for row, request in enumerate(self._rows):
            if request and _is_streamed(request):
                self._events.append((request, Progress([self._search.last_token(row)])))

    def _interrupt(self, now_s: float) -> None:
        """Ends requests that have come to their time limit with what they have."""
        running = self._running()
        over = [request for request in running if request.limit_s <= now_s]
        self._next_limit_s = min(
            (request.limit_s for request in running if request.limit_s > now_s), default=math.inf
        )
        answers = [(request, self._search.interrupt(request)) for request in over]
        self._vacate([row for row, request in enumerate(self._rows) if request in over])
        self._finish(answers, now_s)

    def _finish(self, finished: list[tuple[Request, Finished]], now_s: float) -> None:
        for request, answer in finished:
            _note_tokens(request, answer)
            request.timeline.finished_s = now_s
            self._events.append((request, answer))
        self._end([request for request, _ in finished])

    def _vacate(self, rows: list[int]) -> None:
        """Frees slots; whoever joins next takes them."""
        for row in rows:
            self._search.leave(row)
            self._rows[row] = None
        self._holes = sorted(self._holes + rows, reverse=True)

    def _end(self, requests: list[Request], *, answered: bool = True) -> None:
        """Lets requests go that hold no slot any more."""
        self._streamed -= sum(_is_streamed(request) for request in requests)
        self._scored -= sum(_is_scored(request) for request in requests)
        self._scheduler.finish(requests, answered=answered)


def _unbegun(request: Request, now_s: float) -> Event:
    """Ends a request that waited for too long: with nothing said, where that is what it wanted."""
    if request.deadline_s is not None and request.deadline_s <= now_s:
        return Failed(DeadlinePassed(Stage.QUEUE))
    request.timeline.finished_s = now_s
    lacking = tuple(unmet(request.options.terms, []))
    return Finished([Hypothesis([], None, StopReason.TIME_LIMIT, unmet_terms=lacking)])


def _note_tokens(request: Request, answer: Finished) -> None:
    """Keeps how much was done, for where the answer never reaches its caller."""
    hypotheses = answer.hypotheses[: request.options.num_hypotheses]
    request.tokens_done = sum(len(each.token_ids) for each in hypotheses)


def _is_streamed(request: Request) -> bool:
    """Tells whether progress is told: of several hypotheses nobody knows yet which is best."""
    return request.streamed and request.options.rows == 1


def _is_scored(request: Request) -> bool:
    """Tells whether steps are to give log-probabilities."""
    return request.options.return_scores or not request.options.is_plain
