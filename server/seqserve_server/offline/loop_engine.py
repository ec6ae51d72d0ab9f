"""An engine of this process, for the event loop in which requests are read and answered."""

import asyncio
import itertools
from collections.abc import Iterable
from contextlib import suppress

from seqserve_server.contract.events import Event, Progress
from seqserve_server.contract.messages import Setup
from seqserve_server.contract.request import Spec
from seqserve_server.contract.stats import Ready
from seqserve_server.engine.loading import load
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Events, Request
from seqserve_server.front.engine_client.engine import Receive, RefusalCache


class LoopEngine:
    """Hands requests to the workers, and their events to the loop; used in the loop."""

    def __init__(self, setup: Setup, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ids = itertools.count(1)
        self._receivers: dict[int, tuple[Request, Receive]] = {}
        self._engine = engine = load(setup, self._deliver, Observer())
        self.capacity = Ready(engine.slots, engine.max_rows, engine.cache_bytes)
        self.refusals = RefusalCache()
        engine.start()

    @property
    def pending(self) -> int:
        """Requests that have not ended."""
        return len(self._receivers)

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Begins a request, whose events ``receive`` gets in the loop; returns its id."""
        request = Request(spec, next(self._ids))
        self._engine.submit(request)
        self._receivers[request.request_id] = request, receive
        return request.request_id

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""
        if known := self._receivers.pop(request_id, None):
            self._engine.cancel(known[0], is_late=is_late)

    def stop(self) -> None:
        """Ends the workers, from any thread; unfinished requests fail."""
        self._engine.stop()

    def _deliver(self, events: Events) -> None:
        # If the loop is closed, no task waits any more.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._receive, events)

    def _receive(self, events: Iterable[tuple[Request, Event]]) -> None:
        for request, event in events:
            if isinstance(event, Progress):
                _, receive = self._receivers.get(request.request_id, (None, None))
                timeline = None
            else:
                _, receive = self._receivers.pop(request.request_id, (None, None))
                timeline = request.timeline
            # None if it was cancelled while the event was on its way.
            if receive is not None:
                receive(event, timeline)
