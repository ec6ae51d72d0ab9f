"""Requests of a bulk call on their way: sent or not, but without an answer.

When a call breaks, its successor is sent all of them again; what came back is never sent twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from seqserve import responses
from seqserve.errors import CallError
from seqserve.results import Result
from seqserve.v1 import generation_pb2

Request: TypeAlias = generation_pb2.GenerateBulkRequest
Outcome: TypeAlias = tuple[int, Result | CallError]
"""The number of a source in the input, from 0, and what became of it."""


class _Queue(Protocol):
    """What the queues of threads and those of asyncio have in common."""

    def put_nowait(self, item: Request | None, /) -> None: ...


Q = TypeVar("Q", bound=_Queue)


class Outbox(Generic[Q]):
    """Requests that have no answer yet, in order; any thread may ask."""

    def __init__(self, make_queue: Callable[[], Q]) -> None:
        """Begins empty.

        Args:
            make_queue: Makes what the requests of one call wait in to be sent.
        """
        self._make_queue = make_queue
        self._lock = threading.Lock()
        self._unanswered: dict[int, Request] = {}
        self._queue = make_queue()
        self._is_closed = False

    def put(self, request: Request) -> None:
        """Adds a request."""
        with self._lock:
            self._unanswered[request.id] = request
            self._queue.put_nowait(request)

    def close(self) -> None:
        """Says that no more come, also to whoever takes from a queue."""
        with self._lock:
            self._is_closed = True
            self._queue.put_nowait(None)

    def begin(self) -> Q:
        """Gives a queue of all that has no answer and of what comes from now on, None at its end.

        Whoever takes from an earlier one gets None.
        """
        with self._lock:
            self._queue.put_nowait(None)
            self._queue = self._make_queue()
            for request in self._unanswered.values():
                self._queue.put_nowait(request)
            if self._is_closed:
                self._queue.put_nowait(None)
            return self._queue

    def outcome_of(self, response: generation_pb2.GenerateBulkResponse) -> Outcome:
        """Takes an answer.

        Raises:
            InternalError: It belongs to no request that waits for one, or is none.
        """
        with self._lock:
            if self._unanswered.pop(response.id, None) is None:
                raise responses.not_asked(response.id)
        return response.id, responses.outcome_of(response.outcome)

    def check_empty(self) -> None:
        """Makes sure that a call that ended well has answered all.

        Raises:
            InternalError: It has not.
        """
        with self._lock:
            if self._unanswered or not self._is_closed:
                raise responses.unanswered()
