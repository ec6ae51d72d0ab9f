"""One worker: its slots, and the turn it takes again and again."""

from __future__ import annotations

import logging
import time
from itertools import groupby

import numpy as np

from seqserve_server.engine.cache import Array, SlotCache
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Event, Failed, Progress, Request
from seqserve_server.engine.scheduler import Scheduler
from seqserve_server.engine.search import GreedySearch
from seqserve_server.errors import DeadlinePassed, EngineFault, ServiceError, Stage
from seqserve_server.runtime import Runtime

# How long an idle worker sleeps before it looks for requests that are late.
_IDLE_S = 0.05

Events = list[tuple[Request, Event]]

_log = logging.getLogger(__name__)


def doubling(most: int) -> list[int]:
    """Lists the sizes 1, 2, 4, .. below ``most``, and ``most``."""
    return [*(2**power for power in range((most - 1).bit_length())), most]


class Worker:
    """Rows in the leading slots of a cache, and the requests they belong to."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        slots: int,
        max_source_tokens: int,
        observer: Observer,
    ) -> None:
        """Allocates the slots.

        Args:
            runtime: The model.
            scheduler: Where requests wait.
            slots: Most rows.
            max_source_tokens: Source tokens encoded between two steps while rows run.
            observer: Takes figures.
        """
        manifest = runtime.manifest
        self._runtime = runtime
        self._scheduler = scheduler
        self._max_source_tokens = max_source_tokens
        self._observer = observer
        self._cache = SlotCache(runtime, slots)
        self._search = GreedySearch(
            self._cache, manifest.tokens.eos, manifest.limits.max_target_length
        )
        self._deadlines = np.full(slots, np.inf)
        self._rows: list[Request] = []
        self._streamed = 0
        self._joining: list[Request] = []
        self._fresh: list[Request] = []
        # Kept here rather than passed on, so that a fault later in the turn loses none.
        self._events: Events = []
        self._runtime_s = 0.0

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values."""
        return self._cache.bytes

    def warm_up(self, memory: list[Array]) -> None:
        """Steps with 1, 2, 4, .. rows, as many as there are slots, and leaves them empty.

        Args:
            memory: Of one source of one token.
        """
        for rows in doubling(self._cache.slots):
            # From the start each time, so that no row outgrows the shortest of targets.
            for row in range(rows):
                self._cache.join(row, memory, 0, 1)
            self._cache.advance(rows)
        self._cache.clear()

    def turn(self) -> Events:
        """Makes room, lets new rows join, runs one step; gives what there is to tell."""
        if not self._rows:
            self._scheduler.wait_for_work(_IDLE_S)
        began_s = time.perf_counter()
        self._runtime_s = 0.0
        self._drop(time.monotonic())
        self._admit()
        if self._rows:
            rows = len(self._rows)
            self._step()
            duration_s = time.perf_counter() - began_s
            self._observer.stepped(rows, duration_s, duration_s - self._runtime_s)
        return self._told()

    def fail(self, error: ServiceError) -> Events:
        """Ends every row with an error; gives also what the turn had to tell before it failed."""
        ended = self._rows + self._joining
        self._scheduler.finish(ended)
        self._rows.clear()
        self._joining.clear()
        self._fresh.clear()
        self._streamed = 0
        self._events += [(request, Failed(error)) for request in ended]
        return self._told()

    def _told(self) -> Events:
        events, self._events = self._events, []
        for request, event in events:
            if not isinstance(event, Progress):
                self._observer.ended(request, event)
        return events

    def _drop(self, now_s: float) -> None:
        """Takes out rows and waiting requests that are cancelled or late."""
        for request in self._scheduler.expire(now_s):
            self._events.append((request, Failed(DeadlinePassed(Stage.QUEUE))))
        gone = self._scheduler.take_cancelled(self._rows)
        for request in gone:
            self._observer.cancelled(request)
        rows = len(self._rows)
        if rows and self._deadlines[:rows].min() <= now_s:
            late = [self._rows[row] for row in np.flatnonzero(self._deadlines[:rows] <= now_s)]
            late = [request for request in late if request not in gone]
            self._events += [(request, Failed(DeadlinePassed(Stage.DECODE))) for request in late]
            gone += late
        self._leave([self._rows.index(request) for request in gone])

    def _admit(self) -> None:
        """Encodes new sources within the budget, those of one length together."""
        held = len(self._rows)
        new = self._scheduler.take(
            held=held, free=self._cache.slots - held, budget_tokens=self._max_source_tokens
        )
        for request in new:
            request.timeline.encode_began_s = time.monotonic()
        # Sources of one length need no padding, and a row costs what it costs alone.
        new.sort(key=lambda request: len(request.source))
        # Known before they hold a row, so that a fault while they are encoded ends them too.
        self._joining += new
        for length, group in groupby(new, key=lambda request: len(request.source)):
            requests = list(group)
            began_s = time.perf_counter()
            try:
                memory = self._encode(requests, length)
            except Exception:
                # Rows that run already have no part in it.
                _log.exception("sources of %d tokens could not be encoded", length)
                self._refuse(requests)
                continue
            duration_s = time.perf_counter() - began_s
            self._runtime_s += duration_s
            self._join(requests, memory, length)
            self._observer.encoded(len(requests), length * len(requests), duration_s)

    def _encode(self, requests: list[Request], length: int) -> list[Array]:
        source = np.array([request.source for request in requests], np.int64)
        return self._runtime.encode(source, np.full(len(requests), length, np.int32))

    def _refuse(self, requests: list[Request]) -> None:
        error = EngineFault("the source could not be encoded")
        for request in requests:
            self._joining.remove(request)
            self._events.append((request, Failed(error)))
        self._scheduler.finish(requests)

    def _join(self, requests: list[Request], memory: list[Array], length: int) -> None:
        """Lays encoded sources into the first free rows."""
        for index, request in enumerate(requests):
            row = len(self._rows)
            self._cache.join(row, memory, index, length)
            self._search.join(row, request.options)
            deadline_s = request.deadline_s
            self._deadlines[row] = np.inf if deadline_s is None else deadline_s
            self._rows.append(request)
            self._joining.remove(request)
            self._fresh.append(request)
            self._streamed += request.streamed
            request.timeline.encode_ended_s = time.monotonic()

    def _step(self) -> None:
        rows = len(self._rows)
        began_s = time.perf_counter()
        self._cache.advance(rows)
        self._runtime_s += time.perf_counter() - began_s
        done = self._search.advance(rows)
        now_s = time.monotonic()
        if self._fresh:
            self._note_first_tokens(now_s)
        if self._streamed:
            self._note_progress()
        for row in done:
            self._rows[row].timeline.finished_s = now_s
            self._events.append((self._rows[row], self._search.result(row)))
        self._leave(done.tolist())

    def _note_first_tokens(self, now_s: float) -> None:
        for request in self._fresh:
            request.timeline.first_token_s = now_s
        self._observer.first_tokens(self._fresh)
        self._fresh = []

    def _note_progress(self) -> None:
        for row, request in enumerate(self._rows):
            if request.streamed and not self._search.is_end(row):
                self._events.append((request, Progress([self._search.word(row)])))

    def _leave(self, rows: list[int]) -> None:
        """Frees slots; the last row takes the place of one that leaves."""
        if not rows:
            return
        gone = [self._rows[row] for row in rows]
        for row in sorted(rows, reverse=True):
            last = len(self._rows) - 1
            if row != last:
                self._cache.move(last, row)
                self._search.move(last, row)
                self._deadlines[row] = self._deadlines[last]
                self._rows[row] = self._rows[last]
            self._rows.pop()
        self._streamed -= sum(request.streamed for request in gone)
        self._scheduler.finish(gone)
