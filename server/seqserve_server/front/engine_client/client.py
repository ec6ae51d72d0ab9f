"""Sends requests to an engine in another process and brings its events into the event loop.

The other end is ``seqserve_server.engine.host``. When the engine's process ends, its calls fail and
a supervisor starts another one. Call every method from the loop, except :meth:`RemoteEngine.load`,
:meth:`RemoteEngine.request_stats` and :attr:`RemoteEngine.status`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import NamedTuple

from seqserve_server.contract import messages
from seqserve_server.contract.errors import (
    Draining,
    EngineFault,
    ModelUnavailable,
    QueueFull,
    ServiceError,
)
from seqserve_server.contract.events import Failed
from seqserve_server.contract.messages import Message, Ready, StatsReply, Together
from seqserve_server.contract.request import GenerateSpec, Spec
from seqserve_server.front.engine_client.engine import EngineStatus, QueueKey, Receive, RefusalCache
from seqserve_server.front.engine_client.process import HostProcess, StatsClient
from seqserve_server.front.engine_client.supervisor import CircuitBreaker, Supervisor
from seqserve_server.process import logs

_RESTARTING = "the engine of {} has failed and is being started again"


class _Pending(NamedTuple):
    spec: Spec
    receive: Receive


class RemoteEngine:
    """The front's handle of one engine."""

    def __init__(
        self,
        launch: Callable[[], HostProcess],
        stall_s: float = 0.0,
        *,
        label: str,
        breaker: CircuitBreaker | None = None,
        refusals: RefusalCache | None = None,
        request_ids: Iterator[int] | None = None,
    ) -> None:
        """Launches the process at once, so that several engines load in parallel.

        Args:
            launch: Starts a host; called again when the host has died.
            stall_s: Time after which a host is killed if one of its threads hangs; 0 for never.
            label: Model and version, for the log: ``en-de/1``.
            breaker: Decides about restarts.
            refusals: Keeps recent refusals.
            request_ids: Shared by the engines of one version.
        """
        self._launch = launch
        self._stall_s = stall_s
        self._label = label
        self._supervisor = Supervisor(label, self, breaker or CircuitBreaker())
        self._watching: asyncio.Task[None] | None = None
        self._host: HostProcess | None = launch()
        self._request_ids = request_ids or itertools.count(1)
        self._requests: dict[int, _Pending] = {}
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: list[Message] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.capacity = Ready(0, 0, 0)
        """What the engine can hold, once it is loaded."""
        self._stats = StatsClient(self._send)
        self.refusals = refusals or RefusalCache()
        """Recent refusals of this engine."""

    def load(self) -> None:
        """Waits until the host is ready; blocks."""
        if not self._closed:
            self._host = self._host or self._launch()
        host = self._host
        # It may have been closed while the process started.
        if self._closed or host is None:
            self.terminate()
            raise EngineFault("the engine was stopped")
        try:
            # The host sends nothing more before it gets a request.
            with host.channel.makefile("rb") as stream:
                message = messages.read_message(stream)
        except BaseException:
            self.terminate()
            raise
        if isinstance(message, Ready):
            self.capacity = message
            return
        self.terminate()
        if isinstance(message, messages.LoadFailed):
            raise message.error
        raise EngineFault("the engine's process ended while it loaded the model")

    def terminate(self) -> None:
        """Ends the host; blocks."""
        host, self._host = self._host, None
        if host is None:
            return
        with suppress(OSError):
            # Wakes a thread that waits for the host to load.
            host.channel.shutdown(socket.SHUT_RDWR)
        host.channel.close()
        host.end()

    @property
    def pending(self) -> int:
        """Requests that have not ended."""
        return len(self._requests)

    @property
    def is_up(self) -> bool:
        """Whether requests can be taken."""
        return self._transport is not None

    @property
    def is_ready(self) -> bool:
        """Whether requests can be taken, by an engine that has not failed again and again."""
        return self.is_up and self._supervisor.is_trusted

    def watch(self, on_change: Callable[[], None]) -> None:
        """Calls ``on_change`` when :attr:`status` has changed."""
        self._supervisor.on_change = on_change

    @property
    def status(self) -> EngineStatus:
        """The state of the process; may be read from any thread."""
        host, is_ready = self._host, self.is_ready
        return EngineStatus(
            is_up=self.is_up,
            is_ready=is_ready,
            last_error="" if is_ready else self._supervisor.last_error,
            restarts=self._supervisor.restarts,
            pids=() if host is None else (host.pid,),
        )

    async def start(self) -> None:
        """Starts to exchange messages with a host that is ready."""
        assert self._host is not None
        self._loop = asyncio.get_running_loop()
        channel = self._host.channel
        channel.setblocking(False)
        self._transport, _ = await self._loop.create_unix_connection(
            lambda: _Reader(self), sock=channel
        )
        self._supervisor.started()
        if self._stall_s:
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        await self._stats.until_stalled(self._stall_s)
        fields = {"model": self._label, "seconds": self._stall_s}
        logs.event("engine has stood still and is ended", fields, logging.ERROR)
        if self._transport is not None:
            self._transport.abort()

    def submit(self, spec: Spec, receive: Receive) -> int:
        """Sends a request, as :meth:`AnsweringEngine.submit`."""
        # A request for the attention of an answer belongs to a call that was taken before.
        if self._closed and not (isinstance(spec, GenerateSpec) and spec.answer):
            raise Draining
        if self._transport is None:
            raise ModelUnavailable(_RESTARTING.format(self._label))
        request_id = next(self._request_ids)
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
        """Ends the host; unfinished requests fail."""
        self._closed = True
        self._supervisor.stop()
        if self._watching is not None:
            self._watching.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._stats.answer_all()
        self._fail(ModelUnavailable("the version was unloaded while the call ran; call again"))
        await asyncio.to_thread(self.terminate)

    @property
    def last_reply(self) -> StatsReply:
        """The newest statistics."""
        return self._stats.last_reply

    def request_stats(self) -> Future[StatsReply]:
        """Requests new statistics from the engine; from any thread."""
        reply: Future[StatsReply] = Future()
        if self._loop is None or self._loop.is_closed():
            reply.set_result(self.last_reply)
        else:
            self._loop.call_soon_threadsafe(self._request_stats, reply)
        return reply

    def _request_stats(self, reply: Future[StatsReply]) -> None:
        if self._transport is None:
            reply.set_result(self.last_reply)
        else:
            self._stats.request(reply)

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
            self._stats.receive(message)

    def lost(self) -> None:
        """Fails unfinished requests, because the host has ended, and starts another one."""
        if self._transport is None:
            return
        self._transport = None
        if self._watching is not None:
            self._watching.cancel()
        self._stats.lost()
        fields = {"model": self._label, "failed_requests": len(self._requests)}
        logs.event("engine has ended", fields, logging.ERROR)
        self._fail(ModelUnavailable(_RESTARTING.format(self._label)))
        if not self._closed:
            self._supervisor.failed()

    def _fail(self, error: ServiceError) -> None:
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.receive(Failed(error), None)


class _Reader(asyncio.Protocol):
    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._decoder = messages.MessageDecoder()

    def data_received(self, data: bytes) -> None:
        for message in self._decoder.feed(data):
            self._engine.receive(message)

    def connection_lost(self, exception: Exception | None) -> None:
        self._engine.lost()
