"""Logs how far the load of a model is, if it takes long.

A model of gigabytes loads for most of a minute; whoever waits for it sees that something happens.
"""

from __future__ import annotations

import threading
import time

from seqserve_server.process import logs


class LoadingLog:
    """Logs the stage of a load at an interval, from a thread of its own, until the load ends."""

    def __init__(self, label: str, interval_s: float = 5.0) -> None:
        """``label`` is name/version of the model."""
        self._label = label
        self._interval_s = interval_s
        self._began_s = time.monotonic()
        self._stage = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loading", daemon=True)

    def __enter__(self) -> LoadingLog:
        """Begins."""
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Ends; nothing is logged after this."""
        self._ended.set()
        self._thread.join()

    def enter(self, stage: str) -> None:
        """Says which stage begins."""
        self._stage = stage

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            seconds = round(time.monotonic() - self._began_s, 1)
            fields = {"model": self._label, "stage": self._stage, "seconds": seconds}
            logs.event("model loading", fields)
