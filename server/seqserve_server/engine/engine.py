"""The engine: workers whose rows join and leave a running batch at every step.

Iteration-level scheduling as in Orca (Yu et al., OSDI 2022), for encoder-decoder models: between
two steps a worker drops rows that were cancelled or are late, encodes new sources within a budget
so that running rows do not stall, and lays their keys and values into free slots.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from seqserve_server.engine.constraints import Detokenize
from seqserve_server.engine.limits import EngineLimits
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Event, Failed, Finished, Request
from seqserve_server.engine.scheduler import Scheduler
from seqserve_server.engine.search import MOST_BEAMS
from seqserve_server.engine.teacher import Teacher
from seqserve_server.engine.worker import Events, Worker, doubling
from seqserve_server.errors import EngineFault
from seqserve_server.runtime import Runtime

Deliver = Callable[[Events], None]
"""Told, once per step and from a worker's thread, of all events of that step."""

_log = logging.getLogger(__name__)


def deliver(events: Events) -> None:
    """Tells every request its events, here and now."""
    for request, event in events:
        request.receive(event)


class Engine:
    """Workers over one runtime and one queue."""

    def __init__(
        self,
        runtime: Runtime,
        limits: EngineLimits,
        deliver: Deliver,
        observer: Observer,
        detokenize: Detokenize,
    ) -> None:
        """Allocates every cache; nothing runs before :meth:`start`.

        Args:
            runtime: The model.
            limits: Bounds of memory and queue.
            deliver: Takes events.
            observer: Takes figures.
            detokenize: Gives the text of tokens, in which stop sequences are looked for.
        """
        self._runtime = runtime
        self._observer = observer
        slots = -(-limits.slots // limits.workers)
        self._scheduler = Scheduler(
            workers=limits.workers,
            slots=slots * limits.workers,
            max_queue=limits.max_queue,
            max_queue_tokens=limits.max_queue_tokens,
            max_queue_s=limits.max_queue_s,
            caller_share=limits.caller_share,
        )
        self._deliver = deliver
        self._turns = [0] * limits.workers
        self._workers = [
            Worker(
                runtime,
                self._scheduler,
                slots,
                limits.max_source_tokens_per_step,
                observer,
                detokenize,
            )
            for _ in range(limits.workers)
        ]
        self._threads = [
            threading.Thread(
                target=self._work, args=(number, worker), name=f"step-{number}", daemon=True
            )
            for number, worker in enumerate(self._workers)
        ]
        self._teacher = Teacher(runtime, limits.max_queue, self._tell_one)
        self.slots = slots * limits.workers
        self.most_rows = min(slots, MOST_BEAMS)
        """Slots that one request can have."""

    def warm_up(self) -> None:
        """Runs the graphs at sizes from least to most, before :meth:`start`.

        Whatever ONNX Runtime makes at first use is made now, so that no caller waits for it, and a
        graph that cannot run is found. No figure is told, no slot is left filled.
        """
        manifest = self._runtime.manifest
        # From long to short, because the last memory, of one token, is what workers step with.
        for length in reversed(doubling(manifest.limits.max_source_length)):
            memory = self._runtime.encode([[manifest.tokens.eos] * length])
        for worker in self._workers:
            worker.warm_up(memory)

    def start(self) -> None:
        """Starts the workers."""
        self._teacher.start()
        for thread in self._threads:
            thread.start()

    def submit(self, request: Request) -> None:
        """Takes a request; its events come through ``deliver``.

        Raises:
            QueueFull: There is no room to wait.
            Draining: The engine was stopped.
        """
        if request.target is None:
            self._scheduler.submit(request)
        else:
            self._teacher.submit(request)

    def cancel(self, request: Request) -> None:
        """Forgets a request; its slot is free before the next step.

        No event follows, but for those of a step that is under way.
        """
        left = self._scheduler.cancel(request)
        if self._teacher.cancel(request):
            # An answer that only waited for its attention is counted already.
            left = request.target is not None
        if left:
            self._observer.cancelled(request)

    def stop(self) -> None:
        """Ends the workers; whatever still waited or ran fails."""
        left = self._scheduler.stop()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        untaught = self._teacher.stop()
        error = EngineFault("the engine was stopped")
        events: Events = [(request, Failed(error)) for request in (*left, *untaught)]
        for request, event in events:
            # An answer that waits for its attention is counted already.
            if request in left or request.target is not None:
                self._observer.ended(request, event)
        for worker in self._workers:
            events += worker.fail(error)
        self._tell(events)

    @property
    def queue_depth(self) -> int:
        """Requests that wait for a slot."""
        return self._scheduler.queue_depth

    @property
    def low_queue_depth(self) -> int:
        """Those of them that have low priority."""
        return self._scheduler.low_queue_depth

    @property
    def slots_in_use(self) -> int:
        """Rows that run."""
        return self._scheduler.running

    @property
    def beats(self) -> tuple[int, ...]:
        """How often each thread has come round; all go on, idle ones too, or one hangs."""
        return (*self._turns, self._teacher.beats)

    @property
    def cache_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(worker.cache_bytes for worker in self._workers)

    def _work(self, number: int, worker: Worker) -> None:
        while not self._scheduler.stopped:
            self._turns[number] += 1
            try:
                events = worker.turn()
            except Exception:
                # A fault ends the rows of this worker, not the worker.
                events = worker.fail(EngineFault("a step failed"))
                ended = {one.call_id for one, event in events if isinstance(event, Failed)}
                _log.exception("a step failed; it ends requests %s", ", ".join(sorted(ended)))
            self._tell(self._annotated(events))

    def _annotated(self, events: Events) -> Events:
        """Hands answers that are to show their attention to the teacher, which tells them then."""
        told: Events = []
        for request, event in events:
            # What never began has attended to nothing.
            began = request.timeline.encode_began_s > 0.0
            if isinstance(event, Finished) and request.options.needs_attention and began:
                self._teacher.annotate(request, event)
            else:
                told.append((request, event))
        return told

    def _tell_one(self, request: Request, event: Event) -> None:
        if request.target is not None:
            self._observer.ended(request, event)
        self._tell([(request, event)])

    def _tell(self, events: Events) -> None:
        if not events:
            return
        try:
            self._deliver(events)
        except Exception:
            # Whoever listened is gone; the worker has other rows to run.
            _log.exception("events could not be delivered")
