"""Holds waiting requests: fair among clients, in two priorities, counted by client.

Requests of low priority are served when no other request waits, but at least once in sixteen.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from seqserve_server.contract.request import Priority, Spec
from seqserve_server.engine.queue.turns import Turns
from seqserve_server.engine.request import Request

MAX_NORMAL_IN_A_ROW = 15
"""Requests of normal priority that are served before a waiting one of low priority."""


class _Owner(NamedTuple):
    client_id: str
    priority: Priority
    is_bulk: bool


@dataclass(slots=True)
class Waiting:
    """How much waits."""

    requests: int = 0
    tokens: int = 0
    rows: int = 0
    """Slots that they will take."""

    def add(self, request: Request, sign: int) -> None:
        """Adds a request, or takes it away with a ``sign`` of -1."""
        self.requests += sign
        self.tokens += sign * len(request.spec.source)
        self.rows += sign * request.rows


class FairQueue:
    """Waiting requests. It remembers the clients of served requests until these are forgotten."""

    def __init__(self) -> None:
        self._turns = {priority: Turns() for priority in Priority}
        self._normal_in_a_row = 0
        self._parts = {is_bulk: Waiting() for is_bulk in (False, True)}
        self._owners: dict[_Owner, Waiting] = {}

    def __len__(self) -> int:
        return self._parts[False].requests + self._parts[True].requests

    def __iter__(self) -> Iterator[Request]:
        """Yields the waiting requests, the next one first."""
        order = [Priority.NORMAL, Priority.LOW]
        if self._normal_in_a_row >= MAX_NORMAL_IN_A_ROW:
            order.reverse()
        for priority in order:
            yield from self._turns[priority]

    @property
    def rows(self) -> int:
        """Counts the slots that the waiting requests will take."""
        return sum(part.rows for part in self._parts.values())

    def rows_of(self, *, is_bulk: bool) -> int:
        """Counts the slots that the sources of bulk calls will take, or the other requests."""
        return self._parts[is_bulk].rows

    def count(self, priority: Priority) -> int:
        """Counts the waiting requests of a priority."""
        return len(self._turns[priority])

    def part(self, spec: Spec) -> Waiting:
        """Returns what waits in the same part: that for sources of bulk calls, or the other."""
        return self._parts[spec.is_bulk]

    def own(self, spec: Spec) -> Waiting:
        """Returns what waits there of the same client and priority."""
        return self._owners.get(_owner(spec)) or Waiting()

    @property
    def clients(self) -> int:
        """Counts the clients with waiting requests."""
        return len({owner.client_id for owner in self._owners})

    def work_before(self, request: Request) -> int:
        """Estimates the work that is served before a request that is not added yet."""
        priority = request.spec.priority
        work = self._turns[priority].work_before(request)
        return work + self._turns[Priority.NORMAL].work if priority is Priority.LOW else work

    def add(self, request: Request) -> None:
        """Adds a request."""
        self._turns[request.spec.priority].add(request)
        self._count(request, 1)

    def serve(self, request: Request) -> None:
        """Removes a request that is served now."""
        is_low = request.spec.priority is Priority.LOW
        self._turns[request.spec.priority].serve(request)
        self._count(request, -1)
        has_low = self.count(Priority.LOW) > 0
        self._normal_in_a_row = 0 if is_low or not has_low else self._normal_in_a_row + 1

    def leave(self, request: Request) -> None:
        """Removes and forgets a request that will not be served."""
        self._turns[request.spec.priority].leave(request)
        self._count(request, -1)

    def forget(self, request: Request) -> None:
        """Forgets a request that was served and has ended."""
        self._turns[request.spec.priority].forget(request)

    def _count(self, request: Request, sign: int) -> None:
        spec, owner = request.spec, _owner(request.spec)
        if owner not in self._owners:
            self._owners[owner] = Waiting()
        own = self._owners[owner]
        for waiting in (own, self.part(spec)):
            waiting.add(request, sign)
        if not own.requests:
            del self._owners[owner]


def _owner(spec: Spec) -> _Owner:
    return _Owner(spec.client_id, spec.priority, spec.is_bulk)
