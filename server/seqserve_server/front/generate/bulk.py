"""Answers a stream of requests, each as soon as it is done, with back-pressure.

A request is in flight from the time it begins until the caller has received its response, and few
are in flight at once. So the server stops reading from a caller that sends faster than the engine
works, or reads too slowly, and gRPC's flow control makes the caller wait.

Requests of a message that differ in their sources alone are read together, as a batch: as many as
may be in flight. If that fails, each is read alone, so no request fails because of another one.
Outcomes that are ready at the same time go in one message, if the caller reads several.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TypeAlias

from seqserve.v1.generation_pb2 import (
    GenerateBatchRequest,
    GenerateBulkRequest,
    GenerateBulkResponse,
    GenerateRequest,
    GenerateResponse,
    Outcome,
)
from seqserve_server.contract.errors import Draining, InvalidRequest, ServiceError, Unreadable
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.wire import encoded_list, salvaged

MAX_REQUESTS = 128

Messages: TypeAlias = AsyncIterator[GenerateBulkRequest | Unreadable]
Begin: TypeAlias = Callable[[], Awaitable[GenerateResponse]]
Read: TypeAlias = Callable[
    [GenerateRequest | GenerateBatchRequest, ServerCall], Awaitable[Sequence[Begin]]
]
"""Reads the source of a request, or those of a batch; nothing if they must be read alone."""


@dataclass(slots=True)
class _Group:
    """Requests that are read together: their call, and how many outcomes wait for the caller."""

    call: ServerCall
    left: int

    def taken(self) -> None:
        self.left -= 1
        if not self.left:
            self.call.release_memory()
        elif self.call.held is not None:
            self.call.held.shrink(self.call.held.size * self.left // (self.left + 1))


Ready: TypeAlias = tuple[bytes, _Group | None]
"""An encoded response of one outcome, and the group of its request; None if it has no outcome."""

# gRPC shows a cancel first as an end of the input; the cancel follows within 1 ms.
_CANCEL_FOLLOWS_S = 0.01
# Of an outcome after the first one: its tag, and its length.
_TAG_BYTES = 6
_MORE = GenerateBulkResponse.MORE_FIELD_NUMBER
_OUTCOME = GenerateBulkResponse.OUTCOME_FIELD_NUMBER
RESPONSE = Outcome.RESPONSE_FIELD_NUMBER


class Bulk:
    """The requests of one call."""

    def __init__(
        self, call: ServerCall, read: Read, max_requests: int, draining: asyncio.Event
    ) -> None:
        """Starts without requests, of which ``max_requests`` may be in flight.

        ``read`` runs in a task, with a call for the requests that it reads. Its ServiceError is the
        response, except Draining, which ends the call.
        """
        self._call = call
        self._read_sources = read
        self._draining = draining
        self._free = max_requests
        self._is_free = asyncio.Event()
        self._ready: deque[Ready] = deque()
        self._has_news = asyncio.Event()
        self._max_bytes = 0
        self._tasks = asyncio.TaskGroup()
        self._reading: asyncio.Task[None] | None = None
        self._cut_short: ServiceError | None = None

    async def responses(self, messages: Messages) -> AsyncGenerator[bytes, None]:
        """Reads requests and yields encoded responses as they get ready.

        Closing the generator cancels the requests under way. Raises Draining if the server shuts
        down: requests read before have their responses, except those that the engine refused
        already.
        """
        work = asyncio.create_task(self._work(messages))
        work.add_done_callback(lambda _: self._has_news.set())
        try:
            while self._ready or not work.done():
                if not self._ready:
                    self._has_news.clear()
                    await self._has_news.wait()
                    continue
                taken: list[Ready] = []
                size = 0
                while self._ready and (
                    not taken or size + len(self._ready[0][0]) <= self._max_bytes
                ):
                    taken.append(self._ready.popleft())
                    size += len(taken[-1][0]) + _TAG_BYTES
                first, *more = (data for data, _ in taken)
                yield first + encoded_list(_MORE, more)
                for _, group in taken:
                    if group is not None:
                        group.taken()
                        self._free += 1
                        self._is_free.set()
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self, messages: Messages) -> None:
        async with self._tasks as tasks:
            self._reading = tasks.create_task(self._read(messages))
            drained = tasks.create_task(self._draining.wait())
            await asyncio.wait([self._reading, drained], return_when=asyncio.FIRST_COMPLETED)
            drained.cancel()
            if not self._reading.done():
                self._cut(Draining("the server is shutting down; send the rest to another one"))
            await asyncio.sleep(_CANCEL_FOLLOWS_S)
        if self._cut_short is not None:
            raise self._cut_short

    def _cut(self, error: ServiceError) -> None:
        self._cut_short = error
        assert self._reading is not None
        self._reading.cancel()

    async def _read(self, messages: Messages) -> None:
        await self._place()
        async for message in messages:
            try:
                requests = self._requests_of(message)
            except Unreadable as error:
                self._cut_short = error
                return
            for _, alike in groupby(requests, _shape_of):
                left = list(alike)
                while left:
                    await self._place()
                    now, left = left[: self._free], left[self._free :]
                    self._free -= len(now)
                    self._tasks.create_task(self._run(now))
            await self._place()

    async def _place(self) -> None:
        while self._free <= 0:
            self._is_free.clear()
            await self._is_free.wait()

    def _requests_of(self, message: GenerateBulkRequest | Unreadable) -> list[GenerateBulkRequest]:
        """Returns the requests of a message, after those that can be refused already."""
        if isinstance(message, Unreadable):
            parts = salvaged(message)
        else:
            parts = [(each, True) for each in (message, *message.more)]
            if message.max_response_bytes and not self._max_bytes:
                self._max_bytes = message.max_response_bytes
                told = GenerateBulkResponse(max_requests=MAX_REQUESTS)
                self._add((told.SerializeToString(), None))
        requests: list[GenerateBulkRequest] = []
        reason = f"are {len(parts) - 1}; a message takes at most {MAX_REQUESTS - 1}"
        for place, (request, is_sound) in enumerate(parts):
            if isinstance(message, Unreadable) and not is_sound:
                self._refuse(request, message)
            elif len(parts) > MAX_REQUESTS:
                self._refuse(request, InvalidRequest("more", reason))
            elif place and request.more:
                for nested in (request, *request.more):
                    self._refuse(nested, InvalidRequest("more", "are within further requests"))
            else:
                requests.append(request)
        return requests

    def _refuse(self, request: GenerateBulkRequest, error: ServiceError) -> None:
        self._free -= 1
        self._respond(request, _Group(self._call.child(), 1), error)

    async def _run(self, requests: Sequence[GenerateBulkRequest]) -> None:
        call = self._call.child()
        try:
            await self._answer(requests, _Group(call, len(requests)))
        except BaseException as error:
            call.release_memory()
            if isinstance(error, Draining):
                # Ends the whole call: its status counts for every request without a response.
                self._cut(error)
            elif not isinstance(error, ServiceError):
                raise
            elif len(requests) == 1:
                self._respond(requests[0], _Group(call, 1), error)
            else:
                for request in requests:
                    self._tasks.create_task(self._run([request]))
        finally:
            call.release_models()
            self._call.adopt_model(call)

    async def _answer(self, requests: Sequence[GenerateBulkRequest], group: _Group) -> None:
        """Answers requests of one shape; raises ServiceError if none of them has begun."""
        if error := group.call.quota_error():
            raise error
        first = requests[0].request
        request: GenerateRequest | GenerateBatchRequest = first
        if len(requests) > 1:
            request = GenerateBatchRequest(
                model=first.model,
                version=first.version,
                sources=[each.request.source for each in requests],
                options=first.options,
                priority=first.priority,
            )
        begins = await self._read_sources(request, group.call)
        if not begins:
            raise InvalidRequest("more", "are not read together")
        answers = []
        try:
            for each, begin in zip(requests, begins, strict=True):
                try:
                    answer = asyncio.ensure_future(begin())
                except ServiceError as error:
                    self._respond(each, group, error)
                    continue
                answer.add_done_callback(partial(self._answered, each, group))
                answers.append(answer)
            for answer in answers:
                with suppress(ServiceError):
                    await answer
        finally:
            for answer in answers:
                answer.cancel()
            await asyncio.gather(*answers, return_exceptions=True)

    def _answered(
        self, request: GenerateBulkRequest, group: _Group, answer: asyncio.Future[GenerateResponse]
    ) -> None:
        error = None if answer.cancelled() else answer.exception()
        if isinstance(error, Draining):
            self._cut(error)
        elif isinstance(error, ServiceError):
            self._respond(request, group, error)
        elif error is None and not answer.cancelled():
            response = answer.result()
            group.call.used(len(request.request.source), response)
            self._respond(request, group, response)

    def _respond(
        self, request: GenerateBulkRequest, group: _Group, answer: GenerateResponse | ServiceError
    ) -> None:
        if isinstance(answer, ServiceError):
            outcome = Outcome(failure=group.call.failed(answer)).SerializeToString()
            self._call.record_one_of_many(GenerateResponse())
        else:
            outcome = encoded_list(RESPONSE, [answer.SerializeToString()])
            self._call.record_one_of_many(answer)
        head = GenerateBulkResponse(id=request.id).SerializeToString()
        self._add((head + encoded_list(_OUTCOME, [outcome]), group))

    def _add(self, ready: Ready) -> None:
        self._ready.append(ready)
        self._has_news.set()


def _shape_of(bulk: GenerateBulkRequest) -> tuple[object, ...]:
    request = bulk.request
    return (request.model, request.version, request.priority, request.options.SerializeToString())
