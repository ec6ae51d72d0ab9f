"""The order in which requests that wait are served: fair among callers, first come first served
for each of them.

Start-time fair queueing (Goyal, Vin and Cheng 1997, "Start-time Fair Queueing"): a request's tag is
where the work of its caller's requests before it ends, or the tag of whoever was served last, if
that is further. The least tag is next. So a caller's many requests stand one behind the other,
while the first of another caller stands at the front, behind at most one of each other caller.

What is of low priority gets what is left over, but never less than one turn in sixteen.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from seqserve_server.contract.request import Priority, Request

NORMAL_TURNS = 15
"""Requests of normal priority that are served before one of low priority that waits."""


class _Entry(NamedTuple):
    """A request in its place. No two have the same number, so that requests are not compared."""

    tag: float
    number: int
    request: Request
    work: int


def _tag(entry: _Entry) -> float:
    return entry.tag


class _Line:
    """Requests of one priority, the next one first."""

    def __init__(self) -> None:
        self.entries: list[_Entry] = []
        self.work = 0
        self._places: dict[Request, _Entry] = {}
        self._now = 0.0
        self._ends: dict[str, float] = {}
        self._held: Counter[str] = Counter()
        self._number = 0

    def tag(self, caller: str) -> float:
        """Gives the tag that a caller's next request would have."""
        return max(self._now, self._ends.get(caller, 0.0))

    def add(self, request: Request) -> None:
        tag, work = self.tag(request.caller), request.work
        self._ends[request.caller] = tag + work
        self._held[request.caller] += 1
        self._number += 1
        entry = self._places[request] = _Entry(tag, self._number, request, work)
        insort(self.entries, entry)
        self.work += work

    def remove(self, request: Request) -> float:
        entry = self._places.pop(request)
        del self.entries[bisect_left(self.entries, entry)]
        self.work -= entry.work
        return entry.tag

    def serve(self, request: Request) -> None:
        self._now = max(self._now, self.remove(request))

    def forget(self, request: Request) -> None:
        """Keeps nothing of a caller who neither waits nor runs."""
        caller = request.caller
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller], self._ends[caller]

    def work_before(self, caller: str) -> int:
        """Sums what would be served before a new request of a caller."""
        place = bisect_right(self.entries, self.tag(caller), key=_tag)
        # The shorter part is added up: of many requests most are one caller's, and before its next.
        if place <= len(self.entries) // 2:
            return sum(entry.work for entry in self.entries[:place])
        return self.work - sum(entry.work for entry in self.entries[place:])


class FairQueue:
    """Requests that wait; of those served it remembers whose they are until they are forgotten."""

    def __init__(self) -> None:
        """Begins empty."""
        self._normal, self._low = _Line(), _Line()
        self._turns = 0
        self._holders: Counter[tuple[str, Priority]] = Counter()
        self._tokens_of: Counter[tuple[str, Priority]] = Counter()
        self.rows = 0
        """Slots that those who wait will take."""
        self.tokens = 0
        """Source tokens of those who wait."""
        self.plain = 0
        """Those who wait, and need no attention."""

    def __len__(self) -> int:
        """Counts those who wait."""
        return len(self._normal.entries) + len(self._low.entries)

    def __iter__(self) -> Iterator[Request]:
        """Gives those who wait, the next one first."""
        normal, low = self._normal.entries, self._low.entries
        lines = (low, normal) if self._turns >= NORMAL_TURNS else (normal, low)
        return (entry.request for line in lines for entry in line)

    def waiting(self, priority: Priority) -> int:
        """Counts those of a priority."""
        return len(self._line(priority).entries)

    def held(self, caller: str, priority: Priority) -> tuple[int, int]:
        """Gives how many requests of a caller and a priority wait, and their source tokens."""
        return self._holders[caller, priority], self._tokens_of[caller, priority]

    @property
    def callers(self) -> int:
        """Counts the callers who wait."""
        return len({caller for caller, _ in self._holders})

    def work_before(self, caller: str, priority: Priority) -> int:
        """Sums the work that is served before a new request of a caller."""
        work = self._line(priority).work_before(caller)
        return work + self._normal.work if priority is Priority.LOW else work

    def add(self, request: Request) -> None:
        """Lets a request wait."""
        self._line(request.priority).add(request)
        self._count(request, 1)

    def serve(self, request: Request) -> None:
        """Takes out a request whose turn it is."""
        self._line(request.priority).serve(request)
        self._count(request, -1)
        if request.priority is Priority.LOW or not self._low.entries:
            self._turns = 0
        else:
            self._turns += 1

    def leave(self, request: Request) -> None:
        """Takes out a request that waits no longer, and forgets it."""
        self._line(request.priority).remove(request)
        self._count(request, -1)
        self.forget(request)

    def forget(self, request: Request) -> None:
        """Forgets a request that was served and has ended."""
        self._line(request.priority).forget(request)

    def _line(self, priority: Priority) -> _Line:
        return self._low if priority is Priority.LOW else self._normal

    def _count(self, request: Request, sign: int) -> None:
        holder, tokens = (request.caller, request.priority), sign * len(request.source)
        self._holders[holder] += sign
        self._tokens_of[holder] += tokens
        if not self._holders[holder]:
            del self._holders[holder], self._tokens_of[holder]
        self.rows += sign * request.options.rows
        self.tokens += tokens
        self.plain += sign * (not request.options.needs_attention)
