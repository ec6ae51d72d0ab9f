"""A request whose answer a thread of this process waits for."""

from __future__ import annotations

import threading
from dataclasses import replace

from seqserve_server.contract.events import Event, Failed, Finished, Progress
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.request import Events, Request


class PendingAnswer(Request):
    """Blocks a thread until the last event of a request."""

    def __init__(self, spec: GenerateSpec) -> None:
        """Prepares the request; :meth:`submit` starts it."""
        super().__init__(spec)
        self._ready = threading.Event()
        self._event: Event | None = None

    def receive(self, event: Event) -> None:
        """Takes an event, from any thread."""
        if not isinstance(event, Progress):
            self._event = event
            self._ready.set()

    def wait(self) -> Finished:
        """Waits for the last event.

        Raises:
            ServiceError: The request failed.
        """
        self._ready.wait()
        if isinstance(self._event, Failed):
            raise self._event.error
        assert isinstance(self._event, Finished)
        return self._event


def deliver(events: Events) -> None:
    """Hands events to their pending answers."""
    for request, event in events:
        assert isinstance(request, PendingAnswer)
        request.receive(event)


def generate(engine: Engine, specs: list[GenerateSpec]) -> list[Finished]:
    """Runs requests on an engine that hands its events to :func:`deliver`.

    Returns:
        The answers in the order of ``specs``, with attention where it is asked for.

    Raises:
        ServiceError: A request failed.
    """
    pending = [PendingAnswer(spec) for spec in specs]
    for request in pending:
        engine.submit(request)
    for index, request in enumerate(pending):
        if not request.options.needs_attention:
            continue
        answer = request.wait()
        if request.generate.lacks_attention(request.timeline):
            pending[index] = PendingAnswer(replace(request.generate, answer=answer))
            engine.submit(pending[index])
    # Backwards, so that this thread wakes about once, not once a request: it shares a lock with the
    # workers.
    return [request.wait() for request in reversed(pending)][::-1]
