"""Sends requests to an engine over a socket and brings its events into the event loop.

The other end is ``seqserve_server.engine.host``. Call every method from the loop, except
:meth:`EngineLink.request_stats`.
"""

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import NamedTuple, cast

from seqserve_server.contract import messages
from seqserve_server.contract.errors import Draining, ModelUnavailable, QueueFull, ServiceError
from seqserve_server.contract.events import Failed
from seqserve_server.contract.messages import Message, Together
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.contract.stats import EngineStats, Ready, StatsReply
from seqserve_server.front.engine_client.engine import EngineStatus, QueueKey, Receive, RefusalCache

_RESTARTING = "the engine of {} has failed and is being started again"


class _Pending(NamedTuple):
    spec: Spec
    receive: Receive


class EngineLink:
    """One socket to one engine process; there is another one after the process was restarted."""

    def __init__(self, label: str) -> None:
        """Has no socket yet."""
        self.label = label
        self.request_ids = itertools.count(1)
        """Ids of its next requests; the engines of one version share them."""
        self._requests: dict[int, _Pending] = {}
        self._others = 0
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: list[Message] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.capacity = Ready(0, 0, 0)
        """Capacity of the engine, once it is loaded."""
        self.last_reply = StatsReply(0, 0, EngineStats())
        """The newest statistics, over all its processes."""
        self._asked: deque[Future[StatsReply]] = deque()
        # Statistics of processes that have ended: counters never fall.
        self._past = EngineStats()
        self.refusals = RefusalCache()
        """Recent refusals; the engines of one version share them."""
        self.fault = ""
        """Why it is not trusted, as the process that started it says; empty if it is."""
        self.on_lost: Callable[[], None] = lambda: None
        """Called when the host has closed the socket."""

    async def connect(self, channel: socket.socket) -> None:
        """Exchanges messages over a socket from now on."""
        loop = self._loop = asyncio.get_running_loop()
        if self._transport is not None:
            self._transport.abort()
            self.lost()
        channel.setblocking(False)
        await loop.create_unix_connection(lambda: _Reader(self), sock=channel)

    @property
    def pending(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    @property
    def work(self) -> int:
        """Requests that the engine has; other fronts' as of its last message."""
        return len(self._requests) + self._others

    @property
    def is_up(self) -> bool:
        """Whether requests can be taken."""
        return self._transport is not None

    @property
    def is_ready(self) -> bool:
        """Whether requests can be taken, by an engine that has not failed again and again."""
        return self.is_up and not self.fault

    @property
    def status(self) -> EngineStatus:
        """Its state; may be read from any thread."""
        return EngineStatus(
            is_up=self.is_up, is_ready=self.is_ready, last_error=self.fault, restarts=0, pids=()
        )

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Sends a request, as :meth:`AnsweringEngine.submit`."""
        # A request for the attention of an answer belongs to a call that was taken before.
        if self._closed and not (isinstance(spec, GenerateSpec) and spec.answer):
            raise Draining
        if self._transport is None:
            raise ModelUnavailable(_RESTARTING.format(self.label))
        request_id = next(self.request_ids)
        self._requests[request_id] = _Pending(spec, receive)
        self._send(messages.Submit(request_id, spec))
        return request_id

    def cancel(self, request_id: int, *, is_late: bool = False) -> None:
        """Cancels a request; no event follows."""
        if self._requests.pop(request_id, None) is not None:
            self._send(messages.Cancel(request_id, is_late))

    def close(self) -> None:
        """Refuses new requests from now on."""
        self._closed = True

    async def stop(self) -> None:
        """Closes the socket; unfinished requests fail."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._answer_stats(len(self._asked))
        self._fail("the version was unloaded while the call ran; call again")

    def request_stats(self) -> Future[StatsReply]:
        """Requests new statistics from the engine; from any thread."""
        reply: Future[StatsReply] = Future()
        if self._loop is None or self._loop.is_closed():
            reply.set_result(self.last_reply)
        else:
            self._loop.call_soon_threadsafe(self._ask_stats, reply)
        return reply

    def _ask_stats(self, reply: Future[StatsReply]) -> None:
        if self._transport is None:
            reply.set_result(self.last_reply)
        else:
            self._asked.append(reply)
            self._send(messages.GetStats())

    def _answer_stats(self, count: int) -> None:
        for _ in range(count):
            reply = self._asked.popleft()
            # The waiting task may already be cancelled.
            if reply.set_running_or_notify_cancel():
                reply.set_result(self.last_reply)

    def _send(self, message: Message) -> None:
        if self._transport is None or self._loop is None:
            return
        # The messages of one iteration of the loop go out together: each write wakes the host.
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(message)

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            message = unsent[0] if len(unsent) == 1 else Together(unsent)
            self._transport.write(messages.encode_message(message))

    def receive(self, message: Message) -> None:
        """Handles a message of the host."""
        if isinstance(message, messages.StepEvents):
            self._others = message.others
            for request_id, event, timeline in message.events:
                request = self._requests.get(request_id)
                if request is None:
                    # Cancelled while the event was on its way.
                    continue
                if timeline is not None:
                    del self._requests[request_id]
                if isinstance(event, Failed) and isinstance(event.error, QueueFull):
                    key = QueueKey.of(request.spec)
                    event = Failed(self.refusals.refused(key, event.error))
                request.receive(event, timeline)
        elif isinstance(message, StatsReply):
            self.last_reply = message._replace(stats=self._past + message.stats)
            self._answer_stats(1)

    def connected(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport of the socket."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def disconnected(self, transport: asyncio.BaseTransport | None) -> None:
        """Notes that a socket is closed, unless another one has replaced it."""
        if transport is self._transport and self.lost():
            self.on_lost()

    def lost(self) -> bool:
        """Fails unfinished requests, because the host has ended; False if that is known."""
        if self._transport is None:
            return False
        self._transport = None
        self._others = 0
        self._past = self.last_reply.stats
        self.last_reply = StatsReply(0, 0, self._past)
        self._answer_stats(len(self._asked))
        self._fail(_RESTARTING.format(self.label))
        return True

    def _fail(self, reason: str) -> None:
        requests, self._requests = self._requests, {}
        error: ServiceError = ModelUnavailable(reason)
        for request in requests.values():
            request.receive(Failed(error), None)


class _Reader(asyncio.Protocol):
    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._frames = messages.Frames()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._link.connected(transport)

    def data_received(self, data: bytes) -> None:
        for body in self._frames.feed(data):
            self._link.receive(messages.decoded(body))

    def connection_lost(self, exception: Exception | None) -> None:
        self._link.disconnected(self._transport)
