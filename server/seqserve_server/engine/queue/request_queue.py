"""The common part of both queues: admission, cancellation of waiting requests, and shutdown."""

import threading
import time
from collections.abc import Callable

from seqserve_server.contract.errors import Draining
from seqserve_server.contract.limits import QueueLimits
from seqserve_server.contract.request import Priority
from seqserve_server.engine.queue.admission import Admission, Pace
from seqserve_server.engine.queue.fair_queue import FairQueue
from seqserve_server.engine.request import Request, RequestState


class RequestQueue:
    """Requests that wait, bounded and fair. Every method may be called from any thread."""

    def __init__(
        self, limits: QueueLimits, slots: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._slots = slots
        self._queue = FairQueue()
        self._pace = Pace(slots)
        self._admission = Admission(self._queue, self._pace, limits)
        self._changed = threading.Condition()
        self._stopped = False

    @property
    def changed(self) -> threading.Condition:
        """Held while the queue changes, by one thread as often as it likes."""
        return self._changed

    @property
    def queue_depth(self) -> int:
        """Waiting requests."""
        return len(self._queue)

    @property
    def low_queue_depth(self) -> int:
        """Waiting requests of low priority."""
        return self._queue.count(Priority.LOW)

    @property
    def stopped(self) -> bool:
        """Whether the threads that take requests should end."""
        return self._stopped

    def assert_idle(self) -> None:
        """Checks that nothing is kept of requests and clients that have left."""
        self._queue.assert_idle()

    def submit(self, request: Request) -> None:
        """Adds a request; raises QueueFull, or Draining once the engine stops."""
        with self._changed:
            if self._stopped:
                raise Draining
            self._add(request)
            request.state = RequestState.WAITING
            self._changed.notify()

    def _add(self, request: Request) -> None:
        raise NotImplementedError

    def cancel(self, request: Request) -> bool:
        """Removes a request that waits; returns whether it was waiting, and so has left."""
        with self._changed:
            if request.state is not RequestState.WAITING:
                return False
            self._leave(request)
            return True

    def _leave(self, request: Request) -> None:
        self._queue.leave(request)
        request.state = RequestState.DONE

    def _waiting(self) -> list[Request]:
        return list(self._queue)

    def stop(self) -> list[Request]:
        """Hands out nothing more; returns the requests that still waited."""
        with self._changed:
            self._stopped = True
            waiting = self._waiting()
            for request in waiting:
                self._leave(request)
            self._changed.notify_all()
        return waiting
