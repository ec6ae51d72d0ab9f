"""Time that passes when a test says so."""

from __future__ import annotations


class Clock:
    """Stands where :func:`time.monotonic` would be."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s
