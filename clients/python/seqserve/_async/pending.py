"""Requests of a bulk call that have no answer yet, whether they are sent or not.

When a call breaks, the next one is sent all of them; a request with an answer is never sent again.
"""

from __future__ import annotations

import threading
from typing import TypeAlias

from seqserve import responses
from seqserve._concurrency.tasks import Queue
from seqserve.errors import CallError, InternalError
from seqserve.results import Result
from seqserve.v1 import generation_pb2

Request: TypeAlias = generation_pb2.GenerateBulkRequest
Outcome: TypeAlias = tuple[int, Result | CallError]
"""The index of a source in the input, from 0, and its result or error."""


class PendingRequests:
    """Requests without an answer, in order; safe to share between tasks."""

    def __init__(self) -> None:
        """Starts empty."""
        self._lock = threading.Lock()
        self._requests: dict[int, Request] = {}
        self._queue: Queue[Request | None] = Queue()
        self._is_closed = False

    def put(self, request: Request) -> None:
        """Adds a request."""
        with self._lock:
            self._requests[request.id] = request
            self._queue.put_nowait(request)

    def close(self) -> None:
        """Ends the queue: no requests will follow."""
        with self._lock:
            self._is_closed = True
            self._queue.put_nowait(None)

    def end_call(self) -> None:
        """Ends the queue of this call; what has no answer then goes to the next one."""
        with self._lock:
            self._queue.put_nowait(None)

    def begin(self) -> Queue[Request | None]:
        """Returns a queue of all pending and future requests, with None at its end.

        Ends the queue of the call before, too.
        """
        with self._lock:
            self._queue.put_nowait(None)
            self._queue = Queue()
            for request in self._requests.values():
                self._queue.put_nowait(request)
            if self._is_closed:
                self._queue.put_nowait(None)
            return self._queue

    def outcome_of(self, response: generation_pb2.GenerateBulkResponse) -> Outcome:
        """Converts a response to a pending request."""
        with self._lock:
            if response.id not in self._requests:
                reason = f"the server answered {response.id}, which waits for no answer"
                raise InternalError("INTERNAL", reason)
        return response.id, responses.outcome_of(response.outcome)

    def remove(self, number: int) -> None:
        """Removes a request, which has its answer."""
        with self._lock:
            del self._requests[number]

    def larger_than(self, limit: int) -> list[Request]:
        """Returns the requests that have more bytes."""
        with self._lock:
            return [each for each in self._requests.values() if each.ByteSize() > limit]

    def check_empty(self) -> None:
        """Checks that a call that ended with OK has answered every request."""
        with self._lock:
            if self._requests or not self._is_closed:
                reason = "the server ended the call before it had answered all"
                raise InternalError("INTERNAL", reason)
