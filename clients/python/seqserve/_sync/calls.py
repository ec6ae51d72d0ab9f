# Generated from seqserve/_async/calls.py by `make clients`; do not edit.
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
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from contextlib import closing
from typing import Any, Generic, Protocol, TypeVar

from google.protobuf.message import Message

from seqserve import responses, threads
from seqserve._transport.connection import Method
from seqserve._transport.status import client_closed
from seqserve.arguments import WINDOW, checked_concurrency
from seqserve.errors import CallError, InternalError
from seqserve.results import Piece
from seqserve.retry import Attempts
from seqserve.threads import Event
from seqserve.v1 import generation_pb2


class Call(Protocol):
    """A call in flight."""

    def __iter__(self) -> Iterator[Any]:
        """Yields the response messages as they arrive."""

    def cancel(self) -> None:
        """Cancels the call; has no effect on one that has ended."""


class Transport(Protocol):
    """Opens calls."""

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends one request, or the requests of an iterator; None sets no deadline."""

    def close(self) -> None:
        """Cancels the calls in flight and refuses new ones."""


class CallGroup:
    """Calls of one transport that can be cancelled together; new ones then raise ``Cancelled``."""

    def __init__(self, transport: Transport) -> None:
        """Opens its calls through a transport, which it does not close."""
        self._transport = transport
        self._lock = threading.Lock()
        self._is_cancelled = Event()
        self._members: weakref.WeakSet[Call | CallGroup] = weakref.WeakSet()

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
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

    def wait(self, delay_s: float) -> None:
        """Returns after a delay, or raises as soon as the group is cancelled."""
        self._is_cancelled.wait(delay_s)
        self._check()

    def cancel(self) -> None:
        """Cancels the calls in flight, ends the waits, and refuses new calls."""
        with self._lock:
            self._is_cancelled.set()
            members = list(self._members)
        for member in members:
            member.cancel()

    def _add(self, member: Call | CallGroup) -> None:
        with self._lock:
            if not self._is_cancelled.is_set():
                self._members.add(member)
                return
        member.cancel()
        raise client_closed()

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise client_closed()


def messages_of(
    group: CallGroup, method: Method, request: Message, attempts: Attempts
) -> Generator[Any, None, None]:
    """Yields the messages of a call as they arrive."""
    while True:
        call = group.call(method, request, attempts.begin())
        answered = False
        try:
            for message in call:
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
        group.wait(delay_s)


def pieces_of(
    group: CallGroup, request: generation_pb2.GenerateRequest, attempts: Attempts
) -> Generator[Piece, None, None]:
    """Yields the pieces of a stream as they arrive."""
    has_result = False
    with closing(messages_of(group, Method.GENERATE_STREAM, request, attempts)) as messages:
        try:
            for message in messages:
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
    """Threads that take turns at reading items, and work on them at the same time."""

    def __init__(
        self,
        work: Callable[[A], R],
        items: Iterable[A],
        concurrency: int,
    ) -> None:
        """Checks the concurrency and starts nothing yet; the threads read items one at a time."""
        self._work = work
        self._items = threads.items_of(items)
        self._concurrency = checked_concurrency(concurrency)
        self._reading = threads.Lock()
        self._window = threads.Semaphore(concurrency * WINDOW)
        self._futures: threads.Queue[threads.Future[R] | None] = threads.Queue()
        self._is_over = False

    def outcomes(self) -> Generator[threads.Future[R], None, None]:
        """Yields a finished future for each item, in order.

        If reading the items fails, a last future has the error.
        """
        workers = [threads.start(self._run, "seqserve-many") for _ in range(self._concurrency)]
        try:
            while (future := self._futures.get()) is not None:
                threads.settled(future)
                yield future
                self._window.release()
        finally:
            self._is_over = True
            self._window.release()
            threads.stop(*workers)

    def _run(self) -> None:
        while (taken := self._take()) is not None:
            item, future = taken
            try:
                future.set_result(self._work(item))
            except threads.Failure as error:
                threads.fail(future, error)

    def _take(self) -> tuple[A, threads.Future[R]] | None:
        with self._reading:
            self._window.acquire()
            if self._is_over:
                # Wakes the next worker, which ends as well.
                self._window.release()
                return None
            future: threads.Future[R] = threads.Future()
            try:
                item = next(self._items)
            except StopIteration:
                self._end()
                return None
            except threads.Failure as error:
                threads.fail(future, error)
                self._futures.put_nowait(future)
                self._end()
                return None
            self._futures.put_nowait(future)
            return item, future

    def _end(self) -> None:
        self._is_over = True
        self._window.release()
        self._futures.put_nowait(None)
