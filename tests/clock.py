"""A clock that a test sets."""

from __future__ import annotations


class Clock:
    """Stands for :func:`time.monotonic`; a test changes ``now_s``."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s
