"""Sources without end, through one call; outcomes come as they are ready, memory stays bounded.

The server reads on only while few requests are under way, and here at most ``concurrency`` sources
are between input and output. A call that breaks is followed by another one, which is sent what has
no answer: the input is read once, whatever happens.

The plain run has a thread that reads sources and one that waits for answers, because each may be
slow while the other has news; a third, of gRPC, sends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
)
from itertools import chain
from queue import SimpleQueue

from seqserve import requests
from seqserve.errors import CallError, InvalidArgument
from seqserve.groups import AsyncCallGroup, CallGroup
from seqserve.many import async_iterator, checked_concurrency, checked_sources
from seqserve.outbox import Outbox, Outcome, Request
from seqserve.retry import Attempts
from seqserve.transport import AsyncCall, Method
from seqserve.v1 import generation_pb2


def bulk(
    group: CallGroup,
    template: generation_pb2.GenerateRequest,
    sources: Iterable[str],
    concurrency: int,
    attempts: Attempts,
) -> Generator[Outcome, None, None]:
    """Generates from sources and gives their outcomes as they come.

    Args:
        group: What the calls are sent with.
        template: What is asked of every source.
        sources: The texts; read by a thread.
        concurrency: Most sources that have been read while their outcome has not been given.
        attempts: When to try again.

    Raises:
        InvalidArgument: The concurrency is not at least 1, or the sources are one text.
    """
    sources, concurrency = checked_sources(sources), checked_concurrency(concurrency)
    return _Run(group.group(), template, sources, concurrency, attempts).outcomes()


def async_bulk(
    group: AsyncCallGroup,
    template: generation_pb2.GenerateRequest,
    sources: Iterable[str] | AsyncIterable[str],
    concurrency: int,
    attempts: Attempts,
) -> AsyncGenerator[Outcome, None]:
    """Generates from sources and gives their outcomes as they come; the twin of :func:`bulk`.

    Args:
        group: What the calls are sent with.
        template: What is asked of every source.
        sources: The texts; a plain iterable is read on the event loop, so it must not block.
        concurrency: Most sources that have been read while their outcome has not been given.
        attempts: When to try again.

    Raises:
        InvalidArgument: The concurrency is not at least 1, or the sources are one text.
    """
    sources, concurrency = checked_sources(sources), checked_concurrency(concurrency)
    return _AsyncRun(group, template, sources, concurrency, attempts).outcomes()


class _Run:
    """The threads of one run."""

    def __init__(
        self,
        group: CallGroup,
        template: generation_pb2.GenerateRequest,
        sources: Iterable[str],
        concurrency: int,
        attempts: Attempts,
    ) -> None:
        self._calls = group
        self._template = template
        self._sources = sources
        self._attempts = attempts
        self._room = threading.Semaphore(concurrency)
        self._outbox: Outbox[SimpleQueue[Request | None]] = Outbox(SimpleQueue)
        self._news: SimpleQueue[Outcome | BaseException | None] = SimpleQueue()
        self._is_over = threading.Event()
        self._failure: BaseException | None = None

    def outcomes(self) -> Generator[Outcome, None, None]:
        # Daemons, for a reader of standard input may hang there when the program wants to end.
        for work in (self._read, self._exchange):
            threading.Thread(target=work, name="seqserve-bulk", daemon=True).start()
        try:
            while (news := self._news.get()) is not None:
                if isinstance(news, BaseException):
                    raise news
                yield news
                self._room.release()
        finally:
            self._is_over.set()
            self._room.release()
            self._outbox.close()
            self._calls.cancel()

    def _read(self) -> None:
        try:
            for number, source in enumerate(self._paced()):
                try:
                    request = requests.generate_bulk_request(self._template, number, source)
                except InvalidArgument as error:
                    self._news.put((number, error))
                else:
                    self._outbox.put(request)
        except BaseException as error:
            self._failure = error
        self._outbox.close()

    def _paced(self) -> Iterator[str]:
        self._room.acquire()
        for source in self._sources:
            yield source
            self._room.acquire()
            if self._is_over.is_set():
                return

    def _exchange(self) -> None:
        try:
            while self._call():
                pass
        except BaseException as error:
            self._news.put(error)
        else:
            self._news.put(self._failure)

    def _call(self) -> bool:
        """Sends what has no answer; tells whether some may be left."""
        queue = self._outbox.begin()
        first = queue.get()
        if first is None:
            return False
        sent = chain([first], iter(queue.get, None))
        call = self._calls.call(Method.GENERATE_BULK, sent, self._attempts.remaining_s())
        try:
            for response in call:
                self._attempts.answered()
                self._news.put(self._outbox.outcome_of(response))
        except CallError as error:
            delay_s = self._attempts.delay_after(error)
            if delay_s is None:
                raise
        else:
            self._outbox.check_empty()
            return False
        finally:
            call.cancel()
        self._calls.wait(delay_s)
        return True


class _AsyncRun:
    """The tasks of one run."""

    def __init__(
        self,
        group: AsyncCallGroup,
        template: generation_pb2.GenerateRequest,
        sources: Iterable[str] | AsyncIterable[str],
        concurrency: int,
        attempts: Attempts,
    ) -> None:
        self._calls = group
        self._template = template
        self._sources = sources
        self._attempts = attempts
        self._room = asyncio.Semaphore(concurrency)
        self._outbox: Outbox[asyncio.Queue[Request | None]] = Outbox(asyncio.Queue)
        self._news: asyncio.Queue[Outcome | BaseException | None] = asyncio.Queue()
        self._under_way: AsyncCall | None = None
        self._is_over = False
        self._failure: BaseException | None = None

    async def outcomes(self) -> AsyncGenerator[Outcome, None]:
        reading, exchange = (asyncio.create_task(w) for w in (self._read(), self._exchange()))
        try:
            while (news := await self._news.get()) is not None:
                if isinstance(news, BaseException):
                    raise news
                yield news
                self._room.release()
        finally:
            self._is_over = True
            reading.cancel()
            if self._under_way is None:
                exchange.cancel()
            else:
                # gRPC never frees a message that a cancelled task was waiting for.
                self._under_way.cancel()
            await asyncio.gather(reading, exchange, return_exceptions=True)
            self._outbox.close()

    async def _read(self) -> None:
        try:
            async for number, source in self._paced():
                try:
                    request = requests.generate_bulk_request(self._template, number, source)
                except InvalidArgument as error:
                    self._news.put_nowait((number, error))
                else:
                    self._outbox.put(request)
        except Exception as error:
            self._failure = error
        self._outbox.close()

    async def _paced(self) -> AsyncIterator[tuple[int, str]]:
        number = 0
        await self._room.acquire()
        async for source in async_iterator(self._sources):
            yield number, source
            number += 1
            await self._room.acquire()

    async def _exchange(self) -> None:
        try:
            while await self._call():
                pass
        except Exception as error:
            self._news.put_nowait(error)
        else:
            self._news.put_nowait(self._failure)

    async def _call(self) -> bool:
        """Sends what has no answer; tells whether some may be left."""
        queue = self._outbox.begin()
        first = await queue.get()
        if first is None:
            return False
        sent = _taken(first, queue)
        call = self._calls.call(Method.GENERATE_BULK, sent, self._attempts.remaining_s())
        self._under_way = call
        try:
            async for response in call:
                self._attempts.answered()
                self._news.put_nowait(self._outbox.outcome_of(response))
        except CallError as error:
            delay_s = self._attempts.delay_after(error)
            if delay_s is None or self._is_over:
                raise
        else:
            self._outbox.check_empty()
            return False
        finally:
            self._under_way = None
            call.cancel()
        await self._calls.wait(delay_s)
        return True


async def _taken(
    first: Request | None, queue: asyncio.Queue[Request | None]
) -> AsyncIterator[Request]:
    request = first
    while request is not None:
        yield request
        request = await queue.get()
