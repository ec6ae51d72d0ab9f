"""The engine: workers whose rows join and leave a running batch at every step.

Iteration-level scheduling as in Orca (Yu et al., OSDI 2022), for encoder-decoder models: between
two steps a worker drops rows that were cancelled or are late, encodes new sources within a budget
so that running rows do not stall, and lays their keys and values into free slots. Beside them one
thread runs known targets.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from seqserve_server.contract.errors import EngineFault, NoScorer
from seqserve_server.contract.events import Failed, Finished, Progress
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.request import Events, Priority, Request
from seqserve_server.engine.decoding.constraints import Detokenize
from seqserve_server.engine.decoding.search import MAX_BEAM_SIZE
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.scorer import Scorer
from seqserve_server.engine.worker import Worker, doubling

Deliver = Callable[[Events], None]
"""Takes all events of a step; called once per step, from a worker's thread."""

# A step may be under way when the engine stops; one that takes longer hangs.
_PATIENCE_S = 10.0

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
        self._scheduler = Scheduler(limits, limits.workers, slots * limits.workers)
        self._known = ScoreQueue(limits)
        self._deliver = deliver
        # Of the scorer last.
        self._turns = [0] * (limits.workers + 1)
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
        self._scorer = Scorer(runtime, self._known)
        self._teaching = threading.Thread(target=self._teach, name="scorer", daemon=True)
        self.slots = slots * limits.workers
        self.max_rows = min(slots, MAX_BEAM_SIZE)
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
        if self._runtime.can_score:
            self._scorer.warm_up()

    def start(self) -> None:
        """Starts the workers and the scorer."""
        for thread in (*self._threads, self._teaching):
            thread.start()

    def submit(self, request: Request) -> None:
        """Takes a request; its events come through ``deliver``.

        Raises:
            QueueFull: There is no room to wait.
            NoScorer: The model cannot do what is asked for.
            Draining: The engine was stopped.
        """
        is_known = request.target is not None
        if (is_known or request.options.needs_attention) and not self._runtime.can_score:
            raise NoScorer(self._runtime.manifest.label)
        if is_known:
            self._known.submit(request)
        else:
            self._scheduler.submit(request)

    def cancel(self, request: Request) -> None:
        """Forgets a request; its slot is free before the next step.

        No event follows, but for those of a step that is under way.
        """
        # An answer that waits for its attention is in both; the scheduler knows first.
        left = request.target is None and self._scheduler.cancel(request)
        if self._known.cancel(request) or left:
            self._observer.cancelled(request)

    def stop(self) -> None:
        """Ends the workers and the scorer; whatever still waited or ran fails.

        A thread that hangs is left behind after ten seconds, and what it ran is told nothing.
        """
        left = self._scheduler.stop()
        _wait(self._threads)
        left += [request for request in self._known.stop() if self._settles(request, False)]
        _wait([self._teaching])
        error = EngineFault("the engine was stopped")
        events: Events = [(request, Failed(error)) for request in left]
        for worker, thread in zip(self._workers, self._threads, strict=True):
            if not thread.is_alive():
                events += worker.fail(error)
        self._tell(events)

    @property
    def queue_depth(self) -> int:
        """Requests that wait for a slot, or for the scorer before or after they had one."""
        decoded = sum(self._scheduler.decoded(priority) for priority in Priority)
        return self._scheduler.queue_depth + decoded + self._known.queue_depth

    @property
    def low_queue_depth(self) -> int:
        """Those of them that have low priority."""
        decoded = self._scheduler.decoded(Priority.LOW)
        return self._scheduler.low_queue_depth + decoded + self._known.low_queue_depth

    @property
    def slots_in_use(self) -> int:
        """Rows that run."""
        return self._scheduler.running

    @property
    def heartbeats(self) -> tuple[int, ...]:
        """How often each thread has come round; all go on, idle ones too, or one hangs."""
        return tuple(self._turns)

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
        """Hands answers that are to show their attention to the scorer, which tells them then."""
        told: Events = []
        for request, event in events:
            # What never began has attended to nothing.
            began = request.timeline.encode_began_s > 0.0
            if isinstance(event, Finished) and request.options.needs_attention and began:
                self._known.annotate(request, event)
            else:
                told.append((request, event))
        return told

    def _teach(self) -> None:
        while not self._known.stopped:
            self._turns[-1] += 1
            self._tell(
                [
                    (request, event)
                    for request, event in self._scorer.turn()
                    if self._settles(request, isinstance(event, Finished))
                ]
            )

    def _settles(self, request: Request, answered: bool) -> bool:
        """Ends an answer's wait for its attention; False where it was cancelled meanwhile."""
        return request.target is not None or self._scheduler.settle(request, answered=answered)

    def _tell(self, events: Events) -> None:
        if not events:
            return
        for request, event in events:
            if not isinstance(event, Progress):
                self._observer.ended(request, event)
        try:
            self._deliver(events)
        except Exception:
            # Whoever listened is gone; the worker has other rows to run.
            _log.exception("events could not be delivered")


def _wait(threads: list[threading.Thread]) -> None:
    """Waits for threads that were told to end; not for ever, where one hangs."""
    end_s = time.monotonic() + _PATIENCE_S
    for thread in threads:
        if thread.is_alive():
            thread.join(max(0.0, end_s - time.monotonic()))
        if thread.is_alive():
            _log.error("the thread %s hangs and is left behind", thread.name)
