"""Calls with their retries, and groups of calls that can be cancelled together.

A transport opens calls; a call yields its messages and ends, or fails with a
:class:`~seqserve.errors.CallError`. A unary call yields exactly one message; a call of
:attr:`Method.GENERATE_BULK` sends the requests of an iterator. :mod:`seqserve._transport`
implements transports with gRPC, the tests of the client without a socket.

A call yields the messages of the first attempt that the server answers. An attempt is repeated only
while it has yielded nothing, so no message is yielded twice. Closing the generator cancels the call
on the server. Closing the client, or leaving an iteration over many calls, cancels the calls under
way and wakes those that wait to be retried.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
)
from contextlib import aclosing
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from seqserve import responses, tasks
from seqserve._transport.connection import Method
from seqserve._transport.status import client_closed
from seqserve.arguments import WINDOW, checked_concurrency
from seqserve.errors import CallError, InternalError
from seqserve.results import Piece
from seqserve.retry import Attempts
from seqserve.tasks import Event
from seqserve.v1 import generation_pb2


class AsyncCall(Protocol):
    """A call in flight on an event loop."""

    def __aiter__(self) -> AsyncIterator[Any]:
        """Yields the response messages as they arrive."""

    def cancel(self) -> None:
        """Cancels the call; has no effect on one that has ended."""


class AsyncTransport(Protocol):
    """Opens calls on an event loop."""

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> AsyncCall:
        """Sends one request, or the requests of an iterator; None sets no deadline."""

    async def close(self) -> None:
        """Cancels the calls in flight and refuses new ones."""


class CallGroup:
    """Calls of one transport that can be cancelled together; new ones then raise ``Cancelled``."""

    def __init__(self, transport: AsyncTransport) -> None:
        """Opens its calls through a transport, which it does not close."""
        self._transport = transport
        self._lock = threading.Lock()
        self._is_cancelled = Event()
        self._members: weakref.WeakSet[AsyncCall | CallGroup] = weakref.WeakSet()

    def call(
        self, method: Method, request: Message | AsyncIterator[Message], timeout_s: float | None
    ) -> AsyncCall:
        """Sends one request, or the requests of an iterator."""
        self._check()
        call = self._transport.call(method, request, timeout_s)
        self._add(call)
        return call

    def group(self) -> CallGroup:
        """Makes a group within this one, which can be cancelled separately."""
        group = CallGroup(self._transport)
        self._add(group)
        return group

    async def wait(self, delay_s: float) -> None:
        """Returns after a delay, or raises as soon as the group is cancelled."""
        await self._is_cancelled.wait(delay_s)
        self._check()

    def cancel(self) -> None:
        """Cancels the calls in flight, ends the waits, and refuses new calls."""
        with self._lock:
            self._is_cancelled.set()
            members = list(self._members)
        for member in members:
            member.cancel()

    def _add(self, member: AsyncCall | CallGroup) -> None:
        with self._lock:
            if not self._is_cancelled.is_set():
                self._members.add(member)
                return
        member.cancel()
        raise client_closed()

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise client_closed()


async def messages_of(
    group: CallGroup, method: Method, request: Message, attempts: Attempts
) -> AsyncGenerator[Any, None]:
    """Yields the messages of a call as they arrive."""
    while True:
        call = group.call(method, request, attempts.begin())
        answered = False
        try:
            async for message in call:
                if not answered:
                    attempts.answered()
                answered = True
                yield message
            return
        except CallError as error:
            delay_s = None if answered else attempts.delay_after(error)
            if delay_s is None:
                attempts.explain(error)
                raise
        finally:
            call.cancel()
        await group.wait(delay_s)


async def pieces_of(
    group: CallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> AsyncGenerator[Piece, None]:
    """Yields the pieces of a stream as they arrive."""
    has_result = False
    async with aclosing(messages_of(group, Method.GENERATE_STREAM, request, attempts)) as messages:
        try:
            async for message in messages:
                piece = responses.piece_of(message)
                has_result = has_result or piece.result is not None
                yield piece
        except CallError:
            # The stream is read up to its status, because the server takes an earlier end for a
            # cancellation. A bad status after the result changes nothing.
            if not has_result:
                raise
    if not has_result:
        raise InternalError("INTERNAL", "the server ended the stream without a result")


A = TypeVar("A")
R = TypeVar("R")


class WorkerPool(Generic[A, R]):
    """Tasks that take turns at reading items, and work on them at the same time."""

    def __init__(
        self,
        work: Callable[[A], Coroutine[Any, Any, R]],
        items: Iterable[A] | AsyncIterable[A],
        concurrency: int,
    ) -> None:
        """Checks the concurrency and starts nothing yet; the tasks read items one at a time."""
        self._work = work
        self._items = tasks.items_of(items)
        self._concurrency = checked_concurrency(concurrency)
        self._reading = tasks.Lock()
        self._window = tasks.Semaphore(concurrency * WINDOW)
        self._futures: tasks.Queue[tasks.Future[R] | None] = tasks.Queue()
        self._is_over = False

    async def outcomes(self) -> AsyncGenerator[tasks.Future[R], None]:
        """Yields a finished future for each item, in order.

        If reading the items fails, a last future has the error.
        """
        workers = [tasks.start(self._run, "seqserve-many") for _ in range(self._concurrency)]
        try:
            while (future := await self._futures.get()) is not None:
                await tasks.settled(future)
                yield future
                self._window.release()
        finally:
            self._is_over = True
            self._window.release()
            await tasks.stop(*workers)

    async def _run(self) -> None:
        while (taken := await self._take()) is not None:
            item, future = taken
            try:
                future.set_result(await self._work(item))
            except tasks.Failure as error:
                tasks.fail(future, error)

    async def _take(self) -> tuple[A, tasks.Future[R]] | None:
        async with self._reading:
            await self._window.acquire()
            if self._is_over:
                # Wakes the next worker, which ends as well.
                self._window.release()
                return None
            future: tasks.Future[R] = tasks.Future()
            try:
                item = await anext(self._items)
            except StopAsyncIteration:
                self._end()
                return None
            except tasks.Failure as error:
                tasks.fail(future, error)
                self._futures.put_nowait(future)
                self._end()
                return None
            self._futures.put_nowait(future)
            return item, future

    def _end(self) -> None:
        self._is_over = True
        self._window.release()
        self._futures.put_nowait(None)
