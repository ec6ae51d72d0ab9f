"""An engine in another process, as the event loop sees it; the other end is a :mod:`host`.

Draining, and what becomes of calls when the engine's process ends, are decided here. All methods
belong to the loop, but for :meth:`RemoteEngine.load` and :meth:`RemoteEngine.ask`.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Protocol

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import (
    Draining,
    EngineFault,
    ModelUnavailable,
    QueueFull,
    ServiceError,
)
from seqserve_server.contract.events import Event, Failed
from seqserve_server.contract.messages import (
    Cancel,
    GetStats,
    LoadFailed,
    Message,
    MessageDecoder,
    Ready,
    StatsReply,
    StepEvents,
    Submit,
    encode_message,
    read_message,
)
from seqserve_server.contract.request import Request
from seqserve_server.contract.stats import EngineStats
from seqserve_server.front.engine_client.refusals import QueueKey, RefusalCache

_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 30.0
# Beats are compared several times within the limit, so that a pause of the whole machine, such as a
# suspended VM, fails one comparison, not all.
_LOOKS = 10

_log = logging.getLogger(__name__)


class HostProcess(Protocol):
    """What holds the engine."""

    channel: socket.socket
    """Our end; the first message, of what to load, is on its way already."""

    def end(self) -> None:
        """Waits until it has ended, and makes it where it does not; blocks."""


class RemoteEngine:
    """Takes requests and brings their events into the loop, once per step."""

    def __init__(self, launch: Callable[[], HostProcess], stall_s: float = 0.0) -> None:
        """Launches at once, so that several engines load beside each other.

        Args:
            launch: Begins a host; called again when one has ended unasked.
            stall_s: After which a host is ended of which a thread hangs; 0 for never.
        """
        self._launch = launch
        self._stall_s = stall_s
        self._watching: asyncio.Task[None] | None = None
        self._host: HostProcess | None = launch()
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request] = {}
        self._transport: asyncio.WriteTransport | None = None
        self._unsent: list[bytes] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._restart: asyncio.Task[None] | None = None
        self._asked: deque[Future[StatsReply]] = deque()
        self._closed = False
        # Of hosts that have ended: counters never fall.
        self._past = EngineStats()
        self.slots = self.max_rows = self.cache_bytes = 0
        self.report = StatsReply(0, 0, EngineStats())
        """The last one."""
        self.promises = RefusalCache()
        """To those whom the host refuses."""
        self.on_change: Callable[[bool], None] = lambda is_up: None
        """Called when the engine's process has died, and when a new one serves."""

    def load(self) -> None:
        """Waits until the host is ready; blocks.

        Raises:
            SeqserveError: The host could not load the model.
        """
        host = self._host = self._host or self._launch()
        if self._closed:
            self.discard()
            raise EngineFault("the engine was stopped")
        try:
            # Nothing more comes before it is asked for.
            with host.channel.makefile("rb") as stream:
                message = read_message(stream)
        except BaseException:
            self.discard()
            raise
        if isinstance(message, Ready):
            self.slots, self.max_rows, self.cache_bytes = message
            return
        self.discard()
        if isinstance(message, LoadFailed):
            raise message.error
        raise EngineFault("the engine's process ended while it loaded the model")

    def discard(self) -> None:
        """Ends a host that serves nothing; blocks."""
        host, self._host = self._host, None
        if host is None:
            return
        with suppress(OSError):
            # Wakes whoever waits for it to load.
            host.channel.shutdown(socket.SHUT_RDWR)
        host.channel.close()
        host.end()

    @property
    def is_up(self) -> bool:
        """Whether requests can be taken."""
        return self._transport is not None

    async def start(self) -> None:
        """Listens to a host that is ready."""
        assert self._host is not None
        self._loop = asyncio.get_running_loop()
        channel = self._host.channel
        channel.setblocking(False)
        self._transport, _ = await self._loop.create_unix_connection(
            lambda: _Reader(self), sock=channel
        )
        if self._stall_s:
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Ends a host that has come to a stand, as one that is killed ends: another one begins."""
        seen: tuple[int, ...] = ()
        looks = 0
        while looks < _LOOKS:
            self._ask(Future())
            await asyncio.sleep(self._stall_s / _LOOKS)
            heartbeats = self.report.heartbeats
            if heartbeats and all(
                now != before for now, before in zip(heartbeats, seen, strict=False)
            ):
                seen, looks = heartbeats, 0
            else:
                looks += 1
        _log.error("the engine has stood still for %g s and is ended", self._stall_s)
        if self._transport is not None:
            self._transport.abort()

    def submit(self, request: Request) -> None:
        """Takes a request; its events come in the loop.

        Raises:
            Draining: No new requests are taken.
            ModelUnavailable: The engine's process has ended, and another one begins.
        """
        if self._closed:
            raise Draining("the server is shutting down; call another one")
        if self._transport is None:
            raise ModelUnavailable("the engine has failed and is being started again")
        request.number = next(self._numbers)
        self._requests[request.number] = request
        self._send(
            Submit(
                request.number,
                request.source,
                request.options,
                request.deadline_s,
                request.streamed,
                request.timeline.arrived_s,
                request.target,
                request.wants_attention,
                request.call_id,
                request.caller,
                request.priority,
            )
        )

    def cancel(self, request: Request) -> None:
        """Forgets a request; no event follows."""
        if self._requests.pop(request.number, None) is not None:
            self._send(Cancel(request.number, request.deadline_s))

    def close(self) -> None:
        """Takes no new requests from now on."""
        self._closed = True

    async def stop(self) -> None:
        """Ends the host; what is still under way fails."""
        self._closed = True
        for task in (self._restart, self._watching):
            if task is not None:
                task.cancel()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self._tell_askers()
        self._fail(ModelUnavailable("the version was unloaded while the call ran; call again"))
        await asyncio.to_thread(self.discard)

    def ask(self) -> Future[StatsReply]:
        """Asks how the engine is doing; from any thread."""
        asked: Future[StatsReply] = Future()
        if self._loop is None or self._loop.is_closed():
            asked.set_result(self.report)
        else:
            self._loop.call_soon_threadsafe(self._ask, asked)
        return asked

    def _ask(self, asked: Future[StatsReply]) -> None:
        if self._transport is None:
            asked.set_result(self.report)
        else:
            self._asked.append(asked)
            self._send(GetStats())

    def _tell_asker(self) -> None:
        asker = self._asked.popleft()
        # It may have lost patience.
        if asker.set_running_or_notify_cancel():
            asker.set_result(self.report)

    def _tell_askers(self) -> None:
        """Tells what is known to those whom the host will not answer any more."""
        while self._asked:
            self._tell_asker()

    def _send(self, message: Message) -> None:
        if self._transport is None or self._loop is None:
            return
        # What one turn of the loop brings goes out together: each write wakes the host.
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(encode_message(message))

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, []
        if self._transport is not None:
            self._transport.writelines(unsent)

    def receive(self, message: Message) -> None:
        """Takes a message of the host."""
        if isinstance(message, StepEvents):
            for number, event, timeline in message.events:
                request = self._requests.get(number)
                if request is None:
                    # Cancelled while this was on its way.
                    continue
                if timeline is not None:
                    request.timeline = timeline
                    del self._requests[number]
                if isinstance(event, Failed) and isinstance(event.error, QueueFull):
                    event = Failed(self.promises.refused(QueueKey.of(request), event.error))
                request.receive(event)
        elif isinstance(message, StatsReply):
            total = EngineStats()
            total.add(self._past)
            total.add(message.figures)
            self.report = message._replace(figures=total)
            self._tell_asker()

    def lost(self) -> None:
        """Fails what was under way, because the host has ended, and begins another one."""
        if self._transport is None:
            return
        self._transport = None
        if self._watching is not None:
            self._watching.cancel()
        self._past = self.report.figures
        self.report = self.report._replace(queue_depth=0, slots_in_use=0, low_queue_depth=0)
        self._tell_askers()
        _log.error("the engine's process has ended; %d requests fail", len(self._requests))
        self._fail(ModelUnavailable("the engine has failed and is being started again"))
        self.on_change(False)
        if not self._closed:
            self._restart = asyncio.create_task(self._begin_again())

    async def _begin_again(self) -> None:
        delay_s = _FIRST_DELAY_S
        while not self._closed:
            try:
                await asyncio.to_thread(self.discard)
                await asyncio.to_thread(self.load)
                await self.start()
            except (SeqserveError, OSError) as error:
                _log.error("the engine could not be started again: %s", error)
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _LONGEST_DELAY_S)
            else:
                self.on_change(True)
                return

    def _fail(self, error: ServiceError) -> None:
        event: Event = Failed(error)
        requests, self._requests = self._requests, {}
        for request in requests.values():
            request.receive(event)


class _Reader(asyncio.Protocol):
    """Brings what comes over the socket to an engine."""

    def __init__(self, engine: RemoteEngine) -> None:
        self._engine = engine
        self._unpacker = MessageDecoder()

    def data_received(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            self._engine.receive(message)

    def connection_lost(self, exception: Exception | None) -> None:
        self._engine.lost()
