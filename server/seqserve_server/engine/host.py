"""Serves an engine over a socket; the client is :mod:`seqserve_server.front.engine_client`.

One thread reads messages and submits requests; the workers write the events. So a step does not
wait for the other process, unless that one reads nothing until the socket's buffer is full.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from typing import TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Event, Failed, Progress, Timeline
from seqserve_server.contract.messages import (
    Cancel,
    GetStats,
    LoadFailed,
    Message,
    Ready,
    Setup,
    StatsReply,
    StepEvents,
    Submit,
    Together,
    encode_message,
    read_message,
)
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.observer import Observer, StatsRecorder
from seqserve_server.engine.request import Events, Request

Load: TypeAlias = Callable[[Setup, Deliver, Observer], Engine]
"""Makes the engine of a setup, warm but not started."""


_log = logging.getLogger(__name__)


class Host:
    """Serves one socket until its other end closes it."""

    def __init__(self, channel: socket.socket, load: Load) -> None:
        """Takes the socket.

        Args:
            channel: The other end sends a :class:`Setup` first.
            load: Makes the engine; a :class:`SeqserveError` that it raises goes to the other end.
        """
        self._channel = channel
        self._load = load
        self._stats = StatsRecorder()
        self._requests: dict[int, Request] = {}
        self._send_lock = threading.Lock()

    def run(self) -> None:
        """Loads the engine, serves it, and stops it when the other end is gone."""
        with self._channel, self._channel.makefile("rb") as stream:
            setup = read_message(stream)
            if not isinstance(setup, Setup):
                return
            try:
                engine = self._load(setup, self._deliver, self._stats)
            except SeqserveError as error:
                self._send(LoadFailed(error))
                return
            engine.start()
            self._send(
                Ready(slots=engine.slots, max_rows=engine.max_rows, cache_bytes=engine.cache_bytes)
            )
            while (message := read_message(stream)) is not None:
                self._handle(engine, message)
                if engine.is_broken:
                    # The other end starts a new process.
                    _log.error("the device does no further work; the engine ends")
                    break
            engine.stop()

    def _handle(self, engine: Engine, message: Message) -> None:
        if isinstance(message, Together):
            for each in message.messages:
                self._handle(engine, each)
        elif isinstance(message, Submit):
            self._submit(engine, Request(message.spec, message.request_id))
        elif isinstance(message, Cancel):
            request = self._requests.pop(message.request_id, None)
            if request is not None:
                engine.cancel(request, is_late=message.is_late)
        elif isinstance(message, GetStats):
            low = engine.low_queue_depth
            used, total = engine.gpu_memory
            self._send(
                StatsReply(
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
            )

    def _submit(self, engine: Engine, request: Request) -> None:
        self._requests[request.request_id] = request
        try:
            engine.submit(request)
        except ServiceError as error:
            self._deliver([(request, Failed(error))])

    def _deliver(self, events: Events) -> None:
        sent: list[tuple[int, Event, Timeline | None]] = []
        for request, event in events:
            if isinstance(event, Progress):
                sent.append((request.request_id, event, None))
            else:
                self._requests.pop(request.request_id, None)
                sent.append((request.request_id, event, request.timeline))
        self._send(StepEvents(sent))

    def _send(self, message: Message) -> None:
        data = encode_message(message)
        try:
            with self._send_lock:
                self._channel.sendall(data)
        except OSError:
            # The other end is gone; the reading thread notices too, and stops the engine.
            pass
