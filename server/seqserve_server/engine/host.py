"""An engine for whoever is at the other end of a socket; :mod:`seqserve_server.engine.remote` is.

One thread reads and submits, the workers write what there is to tell. So a step does not wait for
the other end's interpreter, unless nothing is read there until the socket's buffer is full.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.engine.engine import Deliver, Engine
from seqserve_server.engine.figures import Tally
from seqserve_server.engine.mail import (
    Ask,
    Cancel,
    Message,
    Ready,
    Report,
    Setup,
    Submit,
    Told,
    Unable,
    packed,
    read,
)
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Event, Failed, Progress, Request, Timeline
from seqserve_server.engine.worker import Events
from seqserve_server.errors import ServiceError

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
        self._tally = Tally()
        self._requests: dict[int, Request] = {}
        self._sending = threading.Lock()

    def run(self) -> None:
        """Loads, serves, and stops the engine when the other end is gone."""
        with self._channel, self._channel.makefile("rb") as stream:
            setup = read(stream)
            if not isinstance(setup, Setup):
                return
            try:
                engine = self._load(setup, self._deliver, self._tally)
            except SeqserveError as error:
                self._send(Unable(error))
                return
            engine.start()
            self._send(Ready(engine.slots, engine.most_rows, engine.cache_bytes))
            while (message := read(stream)) is not None:
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
        elif isinstance(message, Ask):
            figures = self._tally.figures()
            low = engine.low_queue_depth
            # Some may have left since.
            depth = max(low, engine.queue_depth)
            self._send(Report(depth, engine.slots_in_use, figures, low, engine.beats))

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
        self._send(Told(told))

    def _send(self, message: Message) -> None:
        data = packed(message)
        try:
            with self._sending:
                self._channel.sendall(data)
        except OSError:
            # The other end is gone; the reader finds out too, and ends it all.
            pass


def _ignore(event: Event) -> None:
    """Events are told by number, all of a step together."""
