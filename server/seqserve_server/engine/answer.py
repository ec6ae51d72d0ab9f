"""The answer to one request, for a thread that waits for it."""

from __future__ import annotations

import threading

from seqserve_server.contract.events import Event, Failed, Finished, Progress


class PendingAnswer:
    """Blocks a thread until the last event of a request."""

    def __init__(self) -> None:
        """Begins without any."""
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
