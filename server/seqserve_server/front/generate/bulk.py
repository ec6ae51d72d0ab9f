"""Answers a stream of requests, each as soon as it is done, with back-pressure.

A request is in flight from the time it is read until the caller has received its response, and few
are in flight at once. So the server stops reading from a caller that sends faster than the engine
works, or reads too slowly, and gRPC's flow control makes the caller wait.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import Draining, ServiceError
from seqserve_server.front.call.server_call import ServerCall, Unreadable

Requests: TypeAlias = AsyncIterator[generation_pb2.GenerateBulkRequest | Unreadable]


Answer: TypeAlias = Callable[
    [generation_pb2.GenerateRequest, ServerCall], Awaitable[generation_pb2.GenerateResponse]
]


class _Ready(NamedTuple):
    response: generation_pb2.GenerateBulkResponse
    request_call: ServerCall


# gRPC shows a cancel first as an end of the input; the cancel follows within 1 ms.
_CANCEL_FOLLOWS_S = 0.01


class Bulk:
    """The requests of one call."""

    def __init__(
        self, call: ServerCall, answer: Answer, max_requests: int, draining: asyncio.Event
    ) -> None:
        """Starts without requests, of which ``max_requests`` may be in flight.

        ``answer`` runs in a task for each request, with its own call. A :class:`ServiceError`
        is the response, except Draining, which ends the call. Once ``draining`` is set, no more are
        read.
        """
        self._call = call
        self._answer = answer
        self._draining = draining
        self._free = asyncio.Semaphore(max_requests)
        self._responses: asyncio.Queue[_Ready | None] = asyncio.Queue()
        self._reading: asyncio.Task[None] | None = None
        self._cut_short: ServiceError | None = None

    async def responses(
        self, requests: Requests
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Reads requests and yields the responses as they get ready.

        Closing the generator, or cancelling the task that waits for it, cancels the requests under
        way.

        Raises:
            Draining: The server shuts down. Requests read before have their responses, except those
                that the engine refused already.
            InvalidRequest: A message cannot be parsed, and not even its id is known.
        """
        work = asyncio.create_task(self._work(requests))
        work.add_done_callback(lambda _: self._responses.put_nowait(None))
        try:
            while (ready := await self._responses.get()) is not None:
                yield ready.response
                ready.request_call.release_memory()
                self._free.release()
            await work
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _work(self, requests: Requests) -> None:
        async with asyncio.TaskGroup() as tasks:
            self._reading = tasks.create_task(self._read(requests, tasks))
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

    async def _read(self, requests: Requests, tasks: asyncio.TaskGroup) -> None:
        await self._free.acquire()
        async for request in requests:
            if not isinstance(request, Unreadable):
                tasks.create_task(self._run(request))
            elif request.id is not None:
                self._respond(request.id, self._call.child(), request)
            else:
                self._cut_short = request
                return
            await self._free.acquire()

    async def _run(self, request: generation_pb2.GenerateBulkRequest) -> None:
        call = self._call.child()
        try:
            self._respond(request.id, call, await self._answer(request.request, call))
        except BaseException as error:
            call.release_memory()
            if isinstance(error, Draining):
                # Ends the whole call: its status counts for every request without a response.
                self._cut(error)
            elif isinstance(error, ServiceError):
                self._respond(request.id, call, error)
            else:
                raise
        finally:
            call.release_models()
            self._call.adopt_model(call)

    def _respond(
        self,
        id_: int,
        call: ServerCall,
        answer: generation_pb2.GenerateResponse | ServiceError,
    ) -> None:
        response = generation_pb2.GenerateBulkResponse(id=id_)
        if isinstance(answer, ServiceError):
            response.outcome.failure.CopyFrom(call.failed(answer))
        else:
            response.outcome.response.CopyFrom(answer)
        self._responses.put_nowait(_Ready(response, call))
