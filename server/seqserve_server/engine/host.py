"""Serves an engine over a socket; the other end is ``seqserve_server.front.engine_client``.

One thread reads and submits, the workers write what there is to tell. So a step does not wait for
the other end's interpreter, unless nothing is read there until the socket's buffer is full.
"""

from __future__ import annotations

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
    encode_message,
    read_message,
)
from seqserve_server.contract.request import Events, Request
from seqserve_server.contract.stats import StatsRecorder
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.observer import Observer

Load: TypeAlias = Callable[[Setup, Deliver, Observer], Engine]
"""Makes the engine that a setup describes, warm and not started."""


class Host:
    """Serves one socket until its other end closes it."""

    def __init__(self, channel: socket.socket, load: Load) -> None:
        """Takes the socket.

        Args:
            channel: Whose other end sends a :class:`Setup` first.
            load: Makes the engine; what it raises of :class:`SeqserveError` goes to the other end.
        """
        self._channel = channel
        self._load = load
        self._tally = StatsRecorder()
        self._requests: dict[int, Request] = {}
        self._sending = threading.Lock()

    def run(self) -> None:
        """Loads, serves, and stops the engine when the other end is gone."""
        with self._channel, self._channel.makefile("rb") as stream:
            setup = read_message(stream)
            if not isinstance(setup, Setup):
                return
            try:
                engine = self._load(setup, self._deliver, self._tally)
            except SeqserveError as error:
                self._send(LoadFailed(error))
                return
            engine.start()
            self._send(Ready(engine.slots, engine.max_rows, engine.cache_bytes))
            while (message := read_message(stream)) is not None:
                self._handle(engine, message)
            engine.stop()

    def _handle(self, engine: Engine, message: Message) -> None:
        if isinstance(message, Submit):
            self._submit(engine, message)
        elif isinstance(message, Cancel):
            request = self._requests.pop(message.number, None)
            if request is not None:
                request.deadline_s = message.deadline_s
                engine.cancel(request)
        elif isinstance(message, GetStats):
            figures = self._tally.figures()
            low = engine.low_queue_depth
            # Some may have left since.
            depth = max(low, engine.queue_depth)
            self._send(StatsReply(depth, engine.slots_in_use, figures, low, engine.heartbeats))

    def _submit(self, engine: Engine, message: Submit) -> None:
        request = Request(
            source=message.source,
            options=message.options,
            receive=_ignore,
            deadline_s=message.deadline_s,
            streamed=message.streamed,
            target=message.target,
            wants_attention=message.wants_attention,
            caller=message.caller,
            priority=message.priority,
            number=message.number,
            call_id=message.call_id,
            timeline=Timeline(arrived_s=message.arrived_s),
        )
        self._requests[request.number] = request
        try:
            engine.submit(request)
        except ServiceError as error:
            self._deliver([(request, Failed(error))])

    def _deliver(self, events: Events) -> None:
        told: list[tuple[int, Event, Timeline | None]] = []
        for request, event in events:
            if isinstance(event, Progress):
                told.append((request.number, event, None))
            else:
                self._requests.pop(request.number, None)
                told.append((request.number, event, request.timeline))
        self._send(StepEvents(told))

    def _send(self, message: Message) -> None:
        data = encode_message(message)
        try:
            with self._sending:
                self._channel.sendall(data)
        except OSError:
            # The other end is gone; the reader finds out too, and ends it all.
            pass


def _ignore(event: Event) -> None:
    """Events are told by number, all of a step together."""
