"""The request of each row, and the late ones.

Rows of requests that have left are holes until others join, or until the last rows take them.
"""

import math
from collections.abc import Callable, Collection

from seqserve_server.engine.request import Request


class RowTable:
    """The requests of the leading rows of a cache."""

    def __init__(self) -> None:
        self.requests: list[Request | None] = []
        """The request of each row, None where it has left."""
        self.holes: list[int] = []
        """Rows without a request, the lowest last."""
        # No row is late before these times. They stay when a row leaves, so that late rows may be
        # looked for in vain, but none is missed.
        self._next_deadline_s = self._next_limit_s = math.inf

    def __len__(self) -> int:
        """Counts the rows, holes too."""
        return len(self.requests)

    @property
    def busy(self) -> int:
        """Counts the rows of requests."""
        return len(self.requests) - len(self.holes)

    def running(self) -> list[Request]:
        """Lists the requests that have rows."""
        return [request for request in dict.fromkeys(self.requests) if request]

    def rows_of(self, requests: Collection[Request]) -> list[int]:
        """Lists the rows of some requests."""
        return [row for row, request in enumerate(self.requests) if request in requests]

    def take(self, request: Request) -> list[int]:
        """Assigns rows to a request: holes, or rows after the last one."""
        spec = request.spec
        if spec.deadline_s is not None:
            self._next_deadline_s = min(self._next_deadline_s, spec.deadline_s)
        self._next_limit_s = min(self._next_limit_s, spec.limit_s)
        rows = []
        for _ in range(request.rows):
            if self.holes:
                rows.append(self.holes.pop())
                self.requests[rows[-1]] = request
            else:
                rows.append(len(self.requests))
                self.requests.append(request)
        return rows

    def late(self, now_s: float, gone: Collection[Request]) -> list[Request]:
        """Lists requests whose deadline has passed, without those that are gone anyway."""
        if now_s < self._next_deadline_s:
            return []
        timed = [
            (request.spec.deadline_s, request)
            for request in self.running()
            if request.spec.deadline_s is not None and request not in gone
        ]
        later = (deadline_s for deadline_s, _ in timed if deadline_s > now_s)
        self._next_deadline_s = min(later, default=math.inf)
        return [request for deadline_s, request in timed if deadline_s <= now_s]

    def over_limit(self, now_s: float) -> list[Request]:
        """Lists requests whose time limit has come."""
        if now_s < self._next_limit_s:
            return []
        timed = [(request.spec.limit_s, request) for request in self.running()]
        later = (limit_s for limit_s, _ in timed if limit_s > now_s)
        self._next_limit_s = min(later, default=math.inf)
        return [request for limit_s, request in timed if limit_s <= now_s]

    def vacate(self, rows: list[int]) -> None:
        """Makes holes of rows."""
        for row in rows:
            self.requests[row] = None
        self.holes = sorted(self.holes + rows, reverse=True)

    def compact(
        self,
        move: Callable[[int, int], None],
        step_rows: Callable[[int], int] = lambda rows: rows,
    ) -> None:
        """Moves the last rows into the holes by a function, if that makes the next step smaller.

        ``step_rows`` returns over how many rows a step of some rows runs.
        """
        if not self.holes:
            return
        if self.busy and step_rows(self.busy) == step_rows(len(self.requests)):
            return
        for row in reversed(self.holes):
            while self.requests and self.requests[-1] is None:
                self.requests.pop()
            if row >= len(self.requests):
                break
            move(len(self.requests) - 1, row)
            self.requests[row] = self.requests.pop()
        self.holes.clear()

    def clear(self) -> None:
        """Forgets all rows."""
        self.requests.clear()
        self.holes.clear()
