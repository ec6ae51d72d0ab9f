"""Orders waiting requests: fair among clients, first come first served for each of them.

Start-time fair queueing (Goyal, Vin and Cheng 1997, "Start-time Fair Queueing"): a request's tag is
the point where the work of its client's earlier requests ends, or the tag of the request that was
served last, whichever is further. The request with the lowest tag is next. So the requests of a
busy client queue one behind the other, while the first request of another client comes to the
front, behind at most one request of each other client.

Requests of low priority are served when no other request waits, but at least once in sixteen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from seqserve_server.contract.request import Priority
from seqserve_server.engine.request import Request

MAX_NORMAL_IN_A_ROW = 15
"""Requests of normal priority that are served before a waiting one of low priority."""


class _Entry(NamedTuple):
    """A request in its place. Numbers differ, so that sorting never compares requests."""

    tag: float
    number: int
    request: Request
    work: int


def _tag(entry: _Entry) -> float:
    return entry.tag


class _Line:
    """Waiting requests of one priority, the next one first."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.work = 0
        self._entry_of: dict[Request, _Entry] = {}
        self._served_tag = 0.0
        # Per client with a request in the engine: where its work ends, and how many there are.
        self._end_tags: dict[str, float] = {}
        self._counts: Counter[str] = Counter()
        self._last_number = 0

    @property
    def is_forgotten(self) -> bool:
        """Whether nothing is kept of any client."""
        return not (self.entries or self._entry_of or self._end_tags or self._counts)

    def tag(self, client_id: str) -> float:
        """Computes the tag that the client's next request would have."""
        return max(self._served_tag, self._end_tags.get(client_id, 0.0))

    def add(self, request: Request) -> None:
        client_id, work = request.spec.client_id, request.spec.work
        tag = self.tag(client_id)
        self._end_tags[client_id] = tag + work
        self._counts[client_id] += 1
        self._last_number += 1
        entry = self._entry_of[request] = _Entry(tag, self._last_number, request, work)
        insort(self.entries, entry)
        self.work += work

    def remove(self, request: Request) -> float:
        entry = self._entry_of.pop(request)
        del self.entries[bisect_left(self.entries, entry)]
        self.work -= entry.work
        return entry.tag

    def serve(self, request: Request) -> None:
        self._served_tag = max(self._served_tag, self.remove(request))

    def forget(self, request: Request) -> None:
        """Drops a client that has no request in the engine any more."""
        client_id = request.spec.client_id
        self._counts[client_id] -= 1
        if not self._counts[client_id]:
            del self._counts[client_id], self._end_tags[client_id]

    def work_before(self, client_id: str) -> int:
        """Sums the work that is served before a new request of the client."""
        index = bisect_right(self.entries, self.tag(client_id), key=_tag)
        # Adds up the shorter part: most requests of a long queue are one client's, before its next.
        if index <= len(self.entries) // 2:
            return sum(entry.work for entry in self.entries[:index])
        return self.work - sum(entry.work for entry in self.entries[index:])


class FairQueue:
    """Waiting requests. It remembers the clients of served requests until these are forgotten."""

    def __init__(self) -> None:
        """Starts empty."""
        self._normal, self._low = _Line(), _Line()
        self._normal_in_a_row = 0
        self._waiting: Counter[tuple[str, Priority]] = Counter()
        self._waiting_tokens: Counter[tuple[str, Priority]] = Counter()
        self.rows = 0
        """Slots that the waiting requests will take."""
        self.tokens = 0
        """Source tokens of the waiting requests."""

    def __len__(self) -> int:
        """Counts the waiting requests."""
        return len(self._normal.entries) + len(self._low.entries)

    def __iter__(self) -> Iterator[Request]:
        """Yields the waiting requests, the next one first."""
        normal, low = self._normal.entries, self._low.entries
        is_low_next = self._normal_in_a_row >= MAX_NORMAL_IN_A_ROW
        lines = (low, normal) if is_low_next else (normal, low)
        return (entry.request for line in lines for entry in line)

    def count(self, priority: Priority) -> int:
        """Counts the waiting requests of a priority."""
        return len(self._line(priority).entries)

    def waiting(self, client_id: str, priority: Priority) -> tuple[int, int]:
        """Returns how many requests of a client and a priority wait, and their source tokens."""
        return self._waiting[client_id, priority], self._waiting_tokens[client_id, priority]

    @property
    def clients(self) -> int:
        """Counts the clients with waiting requests."""
        return len({client_id for client_id, _ in self._waiting})

    def work_before(self, client_id: str, priority: Priority) -> int:
        """Sums the work that is served before a new request of a client."""
        work = self._line(priority).work_before(client_id)
        return work + self._normal.work if priority is Priority.LOW else work

    def add(self, request: Request) -> None:
        """Adds a request."""
        self._line(request.spec.priority).add(request)
        self._count(request, 1)

    def serve(self, request: Request) -> None:
        """Removes a request that is served now."""
        is_low = request.spec.priority is Priority.LOW
        self._line(request.spec.priority).serve(request)
        self._count(request, -1)
        self._normal_in_a_row = 0 if is_low or not self._low.entries else self._normal_in_a_row + 1

    def leave(self, request: Request) -> None:
        """Removes and forgets a request that will not be served."""
        self._line(request.spec.priority).remove(request)
        self._count(request, -1)
        self.forget(request)

    def forget(self, request: Request) -> None:
        """Forgets a request that was served and has ended."""
        self._line(request.spec.priority).forget(request)

    def assert_idle(self) -> None:
        """Checks that nothing is kept of requests and clients that have left."""
        assert self._normal.is_forgotten and self._low.is_forgotten
        assert not (self._waiting or self._waiting_tokens or self.rows or self.tokens)

    def _line(self, priority: Priority) -> _Line:
        return self._low if priority is Priority.LOW else self._normal

    def _count(self, request: Request, sign: int) -> None:
        spec = request.spec
        key, tokens = (spec.client_id, spec.priority), sign * len(spec.source)
        self._waiting[key] += sign
        self._waiting_tokens[key] += tokens
        if not self._waiting[key]:
            del self._waiting[key], self._waiting_tokens[key]
        self.rows += sign * spec.rows
        self.tokens += tokens
