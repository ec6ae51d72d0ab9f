"""Serves an engine over sockets, one for each front; the client is
:mod:`seqserve_server.front.engine_client`.

A thread for each socket reads messages and submits requests; the workers write the events. So a
step does not wait for the other process, unless that one reads nothing until the socket's buffer is
full.
"""

from __future__ import annotations

import logging
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import BinaryIO, TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Failed, Progress, Timeline
from seqserve_server.contract.messages import (
    Cancel,
    GetStats,
    LoadFailed,
    Message,
    Setup,
    StepEvents,
    Submit,
    Together,
    encode_message,
    read_message,
)
from seqserve_server.contract.stats import Ready, StatsReply
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.observer import Observer, StatsRecorder
from seqserve_server.engine.request import Events, Request

Load: TypeAlias = Callable[[Setup, Deliver, Observer], Engine]
"""Makes the engine of a setup, warm but not started."""

SEND_TIMEOUT_S = 2.0
"""A front that reads nothing for so long is cut off: workers, and so other fronts, wait for it."""

_log = logging.getLogger(__name__)


class Host:
    """Serves fronts until the process that started it closes the first socket."""

    def __init__(
        self, channel: socket.socket, load: Load, door: socket.socket | None = None
    ) -> None:
        """Takes the socket; the door brings the sockets of further fronts, one with each byte."""
        self._channel = channel
        self._load = load
        self._door = door
        self._stats = StatsRecorder()
        self._fronts: list[_Front] = []
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        """Loads the engine, serves it, and stops it when the other end is gone."""
        with self._channel, self._door or nullcontext(), self._channel.makefile("rb") as stream:
            setup = read_message(stream)
            if not isinstance(setup, Setup):
                return
            try:
                engine = self._load(setup, _deliver, self._stats)
            except SeqserveError as error:
                _send(self._channel, encode_message(LoadFailed(error)))
                return
            engine.start()
            ready = Ready(
                slots=engine.slots, max_rows=engine.max_rows, cache_bytes=engine.cache_bytes
            )
            _send(self._channel, encode_message(ready))
            if self._door is not None:
                self._begin("door", self._accept, engine, self._door)
            self._front(self._channel, engine).serve(stream)
            others = [front.channel for front in self._fronts[1:]]
            for other in [self._door, *others] if self._door else others:
                _shut_down(other)
            engine.stop()
        for thread in self._threads:
            thread.join(SEND_TIMEOUT_S)

    def _accept(self, engine: Engine, door: socket.socket) -> None:
        while True:
            try:
                byte, descriptors, _, _ = socket.recv_fds(door, 1, 1)
            except OSError:
                return
            if not byte:
                return
            for descriptor in descriptors:
                channel = socket.socket(fileno=descriptor)
                timeout = struct.pack("ll", int(SEND_TIMEOUT_S), int(SEND_TIMEOUT_S % 1 * 1e6))
                channel.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
                self._begin("front", self._serve, channel, engine)

    def _serve(self, channel: socket.socket, engine: Engine) -> None:
        with channel, channel.makefile("rb") as stream:
            front = self._front(channel, engine)
            front.serve(stream)
        self._fronts.remove(front)
        if engine.is_broken:
            _shut_down(self._channel)

    def _begin(self, name: str, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _front(self, channel: socket.socket, engine: Engine) -> _Front:
        front = _Front(channel, engine, self._stats, self._fronts)
        self._fronts.append(front)
        return front


class _Front:
    def __init__(
        self, channel: socket.socket, engine: Engine, stats: StatsRecorder, fronts: list[_Front]
    ) -> None:
        self.channel = channel
        self._engine = engine
        self._stats = stats
        self._fronts = fronts
        self._requests: dict[int, Request] = {}
        self._lock = threading.Lock()

    def serve(self, stream: BinaryIO) -> None:
        while (message := read_message(stream)) is not None:
            self._handle(message)
            if self._engine.is_broken:
                # The other end starts a new process.
                _log.error("the device does no further work; the engine ends")
                break
        for request in list(self._requests.values()):
            self._engine.cancel(request)

    def _handle(self, message: Message) -> None:
        engine = self._engine
        if isinstance(message, Together):
            # Workers see all new requests at once, and encode as many as they can together.
            with engine.paused:
                for each in message.messages:
                    self._handle(each)
        elif isinstance(message, Submit):
            request = Request(message.spec, message.request_id, origin=self)
            self._requests[request.request_id] = request
            try:
                engine.submit(request)
            except ServiceError as error:
                self.deliver([(request, Failed(error))])
        elif isinstance(message, Cancel):
            if cancelled := self._requests.pop(message.request_id, None):
                engine.cancel(cancelled, is_late=message.is_late)
        elif isinstance(message, GetStats):
            low = engine.low_queue_depth
            used, total = engine.gpu_memory
            reply = StatsReply(
                # Some of low priority may have left since they were counted.
                queue_depth=max(low, engine.queue_depth),
                low_queue_depth=low,
                slots_in_use=engine.slots_in_use,
                stats=self._stats.snapshot(),
                heartbeats=engine.heartbeats,
                gpu_used_bytes=used,
                gpu_total_bytes=total,
                gpu_unrecorded_steps=engine.unrecorded_steps,
            )
            self._send(reply)

    def deliver(self, events: Events) -> None:
        sent: list[tuple[int, Event, Timeline | None]] = []
        for request, event in events:
            if isinstance(event, Progress):
                sent.append((request.request_id, event, None))
            else:
                self._requests.pop(request.request_id, None)
                sent.append((request.request_id, event, request.timeline))
        others = sum(len(front._requests) for front in self._fronts if front is not self)
        self._send(StepEvents(sent, others))

    def _send(self, message: Message) -> None:
        data = encode_message(message)
        with self._lock:
            _send(self.channel, data)


def _deliver(events: Events) -> None:
    fronts: dict[_Front, Events] = {}
    for event in events:
        fronts.setdefault(event[0].origin, []).append(event)
    for front, its in fronts.items():
        front.deliver(its)


def _send(channel: socket.socket, data: bytes) -> None:
    try:
        channel.sendall(data)
    except OSError as error:
        if isinstance(error, BlockingIOError):
            _log.warning("a front has read nothing for %g s and is cut off", SEND_TIMEOUT_S)
        # The other end is gone, or has not read for too long: half of a message is worth nothing.
        # The reading thread notices, and cancels its requests or stops the engine.
        _shut_down(channel)


def _shut_down(channel: socket.socket) -> None:
    with suppress(OSError):
        channel.shutdown(socket.SHUT_RDWR)
