"""A queue for dynamic batching: a batch leaves when it is full or its oldest item has waited."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class BatchQueue(Generic[T]):
    """First come, first served, between any number of threads."""

    def __init__(self, max_items: int, delay_s: float) -> None:
        """Begins empty.

        Args:
            max_items: Items of a full batch.
            delay_s: How long an item waits for others; longer only while every consumer is busy.
        """
        self._max_items = max_items
        self._delay_s = delay_s
        self._items: deque[tuple[float, T]] = deque()
        self._is_closed = False
        self._changed = threading.Condition()

    def put(self, item: T) -> None:
        """Adds an item; never waits."""
        with self._changed:
            self._items.append((time.monotonic(), item))
            # Between the first and the last item of a batch, no waiter needs to wake.
            if len(self._items) in (1, self._max_items):
                self._changed.notify()

    def take(self) -> list[T]:
        """Waits for a batch; an empty one means that the queue is closed."""
        with self._changed:
            while True:
                left_s = self._time_left()
                if left_s == 0.0:
                    return self._next()
                self._changed.wait(left_s)

    def close(self) -> None:
        """Lets consumers take the rest at once, and then empty batches."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _time_left(self) -> float | None:
        """Gives the time left for the next batch to grow; None for no limit."""
        if self._is_closed or len(self._items) >= self._max_items:
            return 0.0
        if not self._items:
            return None
        return max(0.0, self._items[0][0] + self._delay_s - time.monotonic())

    def _next(self) -> list[T]:
        count = min(self._max_items, len(self._items))
        batch = [self._items.popleft()[1] for _ in range(count)]
        if self._items:
            # Waiters for a first item were not notified of these.
            self._changed.notify()
        return batch
