"""Runs a model for many requests: rows join and leave the running batch at every step.

Iteration-level scheduling as in Orca (Yu et al., OSDI 2022), for encoder-decoder models. Between
two steps a worker drops rows that were cancelled or are late, encodes new sources within a budget
so that running rows do not stall, and copies their keys and values into free slots. Beside the
workers one thread scores given targets and computes the attention of finished answers.
"""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue

from seqserve_server.contract.errors import EngineFault, NoScorer
from seqserve_server.contract.events import Failed, Finished, Progress
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.request import ScoreSpec
from seqserve_server.engine.decoding.constraints import Detokenize
from seqserve_server.engine.decoding.search import MAX_BEAM_SIZE
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.queue.score_queue import ScoreQueue
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime, doubling
from seqserve_server.engine.scorer import Scorer
from seqserve_server.engine.worker import Worker

Deliver = Callable[[Events], None]
"""Receives events of a step, or of a few; called once per step at most, from any thread."""
_MOST_HELD = 16
"""Answers that wait for others of the next steps, while sources of batches wait for slots."""

_log = logging.getLogger(__name__)


class Engine:
    """Workers that share a runtime and a queue, and a scorer with a separate queue."""

    def __init__(
        self,
        runtime: Runtime,
        limits: EngineLimits,
        deliver: Deliver,
        observer: Observer,
        detokenize: Detokenize,
        *,
        stop_timeout_s: float = 10.0,
    ) -> None:
        """Allocates every cache; nothing runs before :meth:`start`."""
        self._runtime = runtime
        self._observer = observer
        self._deliver = deliver
        self._held: Events = []
        self._delivery = threading.Lock()
        self._stop_timeout_s = stop_timeout_s
        slots = -(-limits.slots // limits.workers)
        self.slots = slots * limits.workers
        self._most_held = min(_MOST_HELD, self.slots // 4)
        self.max_rows = min(slots, MAX_BEAM_SIZE)
        """Maximum number of slots of one request."""
        self.is_broken = False
        """Whether no step can succeed any more, whatever its rows."""
        self._scheduler = Scheduler(limits, limits.workers, self.slots)
        self.paused = self._scheduler.changed
        """Workers take no request while a thread holds it, which may submit and cancel some."""
        self._score_queue = ScoreQueue(limits)
        self._scorer = Scorer(runtime, self._score_queue)
        budget = limits.max_source_tokens_per_step
        self._workers = [
            Worker(runtime, self._scheduler, slots, budget, observer, detokenize, number=number)
            for number in range(limits.workers)
        ]
        # The last one is the scorer's.
        self._heartbeats = [0] * (limits.workers + 1)
        # Work of each thread before its first step; None marks the end.
        self._tasks: list[SimpleQueue[Callable[[], None] | None]] = [
            SimpleQueue() for _ in range(limits.workers)
        ]
        self._step_threads = [
            threading.Thread(target=self._work, args=(index,), name=f"step-{index}", daemon=True)
            for index in range(limits.workers)
        ]
        self._score_thread = threading.Thread(target=self._score, name="scorer", daemon=True)

    def warm_up(self) -> None:
        """Runs open graphs at all sizes, so that they allocate or fail before :meth:`start`."""
        manifest, shortlist = self._runtime.manifest, self._runtime.shortlist
        source = [manifest.tokens.eos]
        # From long to short, because workers step with the last source, of one token.
        for length in reversed(doubling(manifest.limits.max_source_length)):
            cross_kv = self._runtime.encode([source * length])
        for index, worker in enumerate(self._workers):
            self._run_in_thread(index, partial(worker.warm_up, cross_kv))
            if shortlist:
                size = manifest.architecture.vocabulary_size
                candidates = shortlist.candidates(source, source, size)
                self._run_in_thread(index, partial(worker.warm_up, cross_kv, candidates))
        if self._runtime.has_open_scorer:
            self._scorer.warm_up()

    def _run_in_thread(self, index: int, task: Callable[[], None]) -> None:
        """Runs a task in the thread of a worker: CUDA graphs are recorded for one thread."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                task()
                done.set_result(None)
            except Exception as error:
                done.set_exception(error)

        if not self._step_threads[index].is_alive():
            self._step_threads[index].start()
        self._tasks[index].put(run)
        done.result()

    def start(self) -> None:
        """Starts the workers and the scorer."""
        self._begin_steps()
        for thread in (*self._step_threads, self._score_thread):
            if not thread.is_alive():
                thread.start()

    def _begin_steps(self) -> None:
        for tasks in self._tasks:
            tasks.put(None)

    def submit(self, request: Request) -> None:
        """Queues a request; its events go to ``deliver``.

        Raises QueueFull if it may not wait, NoScorer if the model lacks the graph, and Draining.
        """
        queue = self._queue_of(request)
        needs_scorer = queue is self._score_queue or request.options.needs_attention
        if needs_scorer and not self._runtime.can_score:
            raise NoScorer(self._runtime.manifest.label)
        if request.answer is not None:
            request.count_tokens(request.answer)
        elif needs_scorer and queue is self._scheduler:
            self._score_queue.check_backlog(self.slots)
        queue.submit(request)

    def cancel(self, request: Request, *, is_late: bool = False) -> None:
        """Cancels a request before the next step; no event follows but from a running one."""
        request.is_late = is_late
        if self._queue_of(request).cancel(request):
            self._observer.cancelled(request)
        # There may be no other event after those that are held.
        self._send([])

    def _queue_of(self, request: Request) -> Scheduler | ScoreQueue:
        is_scored = isinstance(request.spec, ScoreSpec) or request.answer is not None
        return self._score_queue if is_scored else self._scheduler

    def stop(self) -> None:
        """Ends workers and scorer; requests fail, but get no event of a thread that hangs."""
        waiting = self._scheduler.stop()
        self._begin_steps()
        self._join(self._step_threads)
        waiting += self._score_queue.stop()
        self._join([self._score_thread])
        error = EngineFault("the engine was stopped")
        events: Events = [(request, Failed(error)) for request in waiting]
        for worker, thread in zip(self._workers, self._step_threads, strict=True):
            if not thread.is_alive():
                events += worker.fail(error)
        self._publish(events)
        self._send([])

    def _join(self, threads: list[threading.Thread]) -> None:
        end_s = time.monotonic() + self._stop_timeout_s
        for thread in threads:
            if thread.is_alive():
                thread.join(max(0.0, end_s - time.monotonic()))
            if thread.is_alive():
                _log.error("the thread %s hangs and is abandoned", thread.name)

    @property
    def queue_depth(self) -> int:
        """Requests that wait for a slot or for the scorer."""
        return self._scheduler.queue_depth + self._score_queue.queue_depth

    @property
    def low_queue_depth(self) -> int:
        """Waiting requests of low priority."""
        return self._scheduler.low_queue_depth + self._score_queue.low_queue_depth

    @property
    def slots_in_use(self) -> int:
        """Rows that run."""
        return self._scheduler.running

    @property
    def heartbeats(self) -> tuple[int, ...]:
        """Iterations of each thread; if a count stops, even when idle, the thread hangs."""
        return tuple(self._heartbeats)

    @property
    def cache_bytes(self) -> int:
        """Bytes of all keys and values."""
        return sum(worker.cache_bytes for worker in self._workers)

    @property
    def unrecorded_steps(self) -> int:
        """Sizes of steps that a GPU could not record."""
        return self._runtime.unrecorded_steps

    @property
    def gpu_memory(self) -> tuple[int, int]:
        """Bytes in use and bytes there are of the memory of its GPU; 0 where it has none."""
        return self._runtime.gpu_memory()

    def _work(self, index: int) -> None:
        worker = self._workers[index]
        for task in iter(self._tasks[index].get, None):
            task()
        while not self._scheduler.stopped:
            self._heartbeats[index] += 1
            try:
                events = worker.step()
            except Exception:
                # A fault ends the rows of this worker, not the worker.
                events = worker.fail(EngineFault("a step failed"))
                failed = [request for request, event in events if isinstance(event, Failed)]
                calls = sorted({request.spec.call_id for request in failed})
                _log.exception("a step failed; it ends requests %s", ", ".join(calls))
                self._look_for_damage()
            self._publish(events)

    def _score(self) -> None:
        while not self._score_queue.stopped:
            self._heartbeats[-1] += 1
            events = self._scorer.step()
            errors = (event.error for _, event in events if isinstance(event, Failed))
            if any(isinstance(error, EngineFault) for error in errors):
                self._look_for_damage()
            self._publish(events)

    def _look_for_damage(self) -> None:
        if not self._runtime.is_usable():
            self.is_broken = True

    def _publish(self, events: Events) -> None:
        if not events:
            return
        for request, event in events:
            if not isinstance(event, Progress):
                self._observer.ended(request, event)
        with self._delivery:
            # While sources of batches wait, the next steps bring more answers; whoever gets them
            # takes the lock of the interpreter from the workers each time.
            if (
                len(self._held) + len(events) < self._most_held
                and self._scheduler.queue_depth
                and all(
                    request.spec.is_bulk and isinstance(event, Finished)
                    for request, event in events
                )
            ):
                self._held += events
                return
        self._send(events)

    def _send(self, events: Events) -> None:
        with self._delivery:
            events, self._held = self._held + events, []
        if not events:
            return
        try:
            self._deliver(events)
        except Exception:
            # The receiver is gone; the worker has other rows to run.
            _log.exception("events could not be delivered")
