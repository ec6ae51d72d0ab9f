# Generated from seqserve/_async/bulk.py by `make clients`; do not edit.
"""An unbounded number of sources through one call; outcomes arrive as they are ready.

The server reads on only while few requests are in flight, and at most ``concurrency`` sources are
between input and output here. If a call breaks, the next one is sent the requests without an
answer, so the input is read only once. If the server cannot answer one request for now, this side
ends the call, and the next one is sent that request again. A request that has more bytes than the
server takes ends the call too, and is not sent again.

Once the server has said that it reads several requests in a message, a message has all that are at
hand when the one before it is sent.

One thread reads sources and one waits for answers, because each may be slow while the other is not;
gRPC sends the requests.
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from itertools import count
from typing import TypeAlias

from seqserve import requests, responses
from seqserve._sync.calls import CallGroup
from seqserve._transport.connection import Method
from seqserve._transport.status import max_bytes_of, too_large
from seqserve.arguments import BulkSource, checked_concurrency, checked_sources
from seqserve.errors import CallError, InternalError
from seqserve.results import Result
from seqserve.retry import Attempts
from seqserve.threads import Failure, Queue, Semaphore, finished, items_of, start, stop
from seqserve.v1 import generation_pb2

Request: TypeAlias = generation_pb2.GenerateBulkRequest
Response: TypeAlias = generation_pb2.GenerateBulkResponse
# Of a message with several requests, or several outcomes.
_MOST_BYTES = 64 << 10
# Of a request after the first one: its tag, and its length.
_TAG_BYTES = 6
Outcome: TypeAlias = tuple[int, Result | CallError]
"""The index of a source in the input, from 0, and its result or error."""


class BulkRun:
    """One bulk call, with the two threads that feed it and read it."""

    def __init__(
        self,
        group: CallGroup,
        template: generation_pb2.GenerateRequest,
        sources: Iterable[BulkSource],
        concurrency: int,
        attempts: Attempts,
        max_message_bytes: int,
    ) -> None:
        """Checks the arguments; ``template`` is the request of every source, without the source."""
        self._calls = group.group()
        self._template = template
        self._sources = checked_sources(sources)
        self._attempts = attempts
        self._attempts_at: dict[int, Attempts] = {}
        self._pause_s: float | None = None
        self._max_bytes: int | None = None
        self._max_response_bytes = min(max_message_bytes, _MOST_BYTES)
        self._max_requests = 1
        self._window = Semaphore(checked_concurrency(concurrency))
        self._pending = PendingRequests()
        self._outcomes: Queue[list[Outcome] | BaseException | None] = Queue()
        self._is_over = False
        self._failure: BaseException | None = None

    def outcomes(self) -> Generator[Outcome, None, None]:
        """Generates from the sources and yields their outcomes as they arrive."""
        reader = start(self._read, "seqserve-bulk")
        exchange = start(self._exchange, "seqserve-bulk")
        try:
            while (outcomes := self._outcomes.get()) is not None:
                if isinstance(outcomes, BaseException):
                    raise outcomes
                for outcome in outcomes:
                    yield outcome
                    self._window.release()
        finally:
            self._is_over = True
            self._window.release()
            self._pending.close()
            self._calls.cancel()
            stop(reader)
            # It ends with its call.
            finished(exchange)

    def _read(self) -> None:
        try:
            for number, source in self._paced():
                try:
                    request = requests.generate_bulk_request(self._template, number, source)
                    self._check_size(request)
                except CallError as error:
                    self._outcomes.put_nowait([(number, error)])
                else:
                    self._pending.put(request)
        except Failure as error:
            self._failure = error
        self._pending.close()

    def _paced(self) -> Iterator[tuple[int, BulkSource]]:
        numbers = count()
        self._window.acquire()
        for source in items_of(self._sources):
            yield next(numbers), source
            self._window.acquire()
            if self._is_over:
                return

    def _exchange(self) -> None:
        try:
            while self._call():
                pass
        except Failure as error:
            self._outcomes.put_nowait(error)
        else:
            self._outcomes.put_nowait(self._failure)

    def _call(self) -> bool:
        self._pause_s, self._max_requests = None, 1
        queue = self._pending.begin()
        first = queue.get()
        if first is None:
            return False
        sent = self._messages(first, queue)
        call = self._calls.call(Method.GENERATE_BULK, sent, self._attempts.begin())
        try:
            for response in call:
                self._settle(response)
        except CallError as error:
            if self._refused_by_size(error):
                return True
            self._pause_s = self._attempts.delay_after(error)
            if self._pause_s is None:
                self._attempts.explain(error)
                raise
        finally:
            call.cancel()
        if self._pause_s is None:
            self._pending.check_empty()
            return False
        self._calls.wait(self._pause_s)
        return True

    def _messages(self, first: Request, queue: Queue[Request | None]) -> Iterator[Request]:
        request: Request | None = first
        while request is not None:
            message, size = Request(), request.ByteSize()
            message.CopyFrom(request)
            most_bytes = min(self._max_bytes or _MOST_BYTES, _MOST_BYTES)
            if self._max_requests == 1 and size + _TAG_BYTES <= most_bytes:
                message.max_response_bytes = self._max_response_bytes
            while True:
                if queue.empty() or len(message.more) + 1 >= self._max_requests:
                    yield message
                    request = queue.get()
                    break
                request = queue.get()
                size += request.ByteSize() + _TAG_BYTES if request else 0
                if request is None or size > most_bytes:
                    yield message
                    break
                message.more.append(request)

    def _check_size(self, request: Request) -> None:
        if self._max_bytes is not None and request.ByteSize() > self._max_bytes:
            raise too_large(request.ByteSize(), self._max_bytes)

    def _refused_by_size(self, error: CallError) -> bool:
        limit = max_bytes_of(error)
        if limit is None:
            return False
        is_news, self._max_bytes = self._max_bytes != limit, limit
        refused = self._pending.larger_than(limit)
        for request in refused:
            self._pending.remove(request.id)
            self._outcomes.put_nowait([(request.id, too_large(request.ByteSize(), limit))])
        # Or several were too large together.
        return bool(refused) or is_news

    def _settle(self, response: Response) -> None:
        settled: list[Outcome] = []
        answered = [response, *response.more]
        if response.max_requests:
            self._max_requests = response.max_requests
            answered = [each for each in answered if each.HasField("outcome")]
        try:
            for each in answered:
                number, outcome = self._pending.outcome_of(each)
                delay_s = self._delay_after(number, outcome)
                if delay_s is None:
                    self._attempts.answered()
                    self._attempts_at.pop(number, None)
                    self._pending.remove(number)
                    settled.append((number, outcome))
                else:
                    self._pause_s = max(self._pause_s or 0.0, delay_s)
                    self._pending.end_call()
        finally:
            self._outcomes.put_nowait(settled)

    def _delay_after(self, number: int, outcome: Result | CallError) -> float | None:
        if not isinstance(outcome, CallError):
            return None
        attempts = self._attempts_at.setdefault(number, self._attempts.part())
        return attempts.delay_after(outcome)


class PendingRequests:
    """Requests without an answer, sent or not, in order; safe to share between threads.

    When a call breaks, the next one is sent all of them; a request with an answer is never sent
    again.
    """

    def __init__(self) -> None:
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

    def outcome_of(self, response: Response) -> Outcome:
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
