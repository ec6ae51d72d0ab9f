"""Lets clients take turns, and within a client its flows: start-time fair queueing on two levels.

After Goyal, Vin and Cheng 1997, "Start-time Fair Queueing": every child of a node has a virtual
time at which its next request starts. The child that starts first is served, and the work of the
request moves its start on. A child that comes back starts no earlier than the one that was served
last, so turns cannot be saved up. The requests of a busy client thus wait for each other, while the
first request of another client, or of another flow of the same one, goes to the front.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count, islice, pairwise
from typing import TypeAlias

from seqserve_server.engine.request import Request


@dataclass(slots=True)
class _Node:
    """All clients, one client, or one flow."""

    start: int = 0
    """Virtual time at which its next request starts, in units of work."""
    now: int = 0
    """Virtual time among its children: the start of the one that was served last."""
    work: int = 0
    """Work of the requests that wait below it."""
    requests: int = 0
    """Requests below it that wait or run; a node without any is forgotten."""
    children: dict[str, _Node] = field(default_factory=dict)
    # A dict would step over all that have left to find the first one.
    line: OrderedDict[Request, None] = field(default_factory=OrderedDict)
    """Waiting requests of a flow, the next one first."""
    heap: list[_Entry] = field(default_factory=list)
    """Children below which requests wait, by their starts, among entries that are out of date."""
    entries: int = 0
    """Entries so far: their numbers break ties, so that sorting never compares nodes."""
    entry: _Entry | None = None
    """Its own entry among the children of its parent, while requests wait below it."""

    def __iter__(self) -> Iterator[Request]:
        first = self._first()
        if first is not None:
            yield first
            # More than one are asked for rarely: then all children are gone through.
            yield from islice(self._all(), 1, None)

    def _first(self) -> Request | None:
        node = self
        while not node.line:
            while node.heap and not _is_current(node.heap[0]):
                heappop(node.heap)
            if not node.heap:
                return None
            node = node.heap[0][-1]
        return next(iter(node.line))

    def _all(self) -> Iterator[Request]:
        yield from self.line
        heap = [
            (start, number, child._all()) for start, number, child in filter(_is_current, self.heap)
        ]
        heapify(heap)
        numbers = count(self.entries + 1)
        while heap:
            start, _, requests = heap[0]
            request = next(requests, None)
            if request is None:
                heappop(heap)
            else:
                yield request
                heapreplace(heap, (start + request.work, next(numbers), requests))

    def child(self, key: str) -> _Node:
        """Finds a client or a flow; one that has nothing yet is added."""
        if key not in self.children:
            self.children[key] = _Node()
        return self.children[key]

    def enter(self, child: _Node) -> None:
        """Gives a child a new place by its start."""
        self.entries += 1
        child.entry = (child.start, self.entries, child)
        heappush(self.heap, child.entry)
        if len(self.heap) > 2 * len(self.children):
            self.heap = [entry for entry in self.heap if _is_current(entry)]
            heapify(self.heap)

    def work_before(self, path: tuple[str, ...], work: int) -> int:
        """Estimates the work that is served before a new request, if others send as large ones."""
        if not path:
            return self.work
        key, *rest = path
        child = self.children.get(key)
        own = child.work_before(tuple(rest), work) if child else 0
        start = max(self.now, child.start if child else 0) + own
        others = (each for each in self.children.values() if each is not child)
        ahead = (
            min(each.work, start - each.start + work)
            for each in others
            if each.work and each.start <= start
        )
        return own + sum(ahead)


_Entry: TypeAlias = tuple[int, int, _Node]


def _is_current(entry: _Entry) -> bool:
    return entry[-1].entry is entry


class Turns:
    """Waiting requests in the order in which they are served."""

    def __init__(self) -> None:
        self._root = _Node()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Request]:
        """Yields the waiting requests, the next one first."""
        return iter(self._root)

    @property
    def work(self) -> int:
        """Work of all waiting requests."""
        return self._root.work

    def work_before(self, request: Request) -> int:
        """Estimates the work that is served before a request that is not added yet."""
        path = (request.spec.client_id, request.spec.flow_id)
        return self._root.work_before(path, request.work)

    def add(self, request: Request) -> None:
        """Adds a request as the last one of its flow."""
        client = self._root.child(request.spec.client_id)
        nodes = self._root, client, client.child(request.spec.flow_id)
        for parent, child in pairwise(nodes):
            if not child.work:
                child.start = max(child.start, parent.now)
                parent.enter(child)
        for node in nodes:
            node.work += request.work
            node.requests += 1
        nodes[-1].line[request] = None
        self._length += 1

    def serve(self, request: Request) -> None:
        """Removes a request that runs now: its client and its flow have had their turn."""
        nodes = self._nodes(request)
        for parent, child in pairwise(nodes):
            parent.now = max(parent.now, child.start)
            child.start += request.work
            parent.enter(child)
        self._remove(request, nodes)

    def leave(self, request: Request) -> None:
        """Removes and forgets a request that will not be served."""
        self._remove(request, self._nodes(request))
        self.forget(request)

    def forget(self, request: Request) -> None:
        """Forgets a request that has ended, and its client and flow if it was their last one."""
        root, client, flow = nodes = self._nodes(request)
        for node in nodes:
            node.requests -= 1
        if not flow.requests:
            del client.children[request.spec.flow_id]
        if not client.requests:
            del root.children[request.spec.client_id]

    def _remove(self, request: Request, nodes: tuple[_Node, _Node, _Node]) -> None:
        for node in nodes:
            node.work -= request.work
            if not node.work:
                node.entry = None
        del nodes[-1].line[request]
        self._length -= 1

    def _nodes(self, request: Request) -> tuple[_Node, _Node, _Node]:
        """Finds all clients, the client and the flow of a request that was added."""
        client = self._root.children[request.spec.client_id]
        return self._root, client, client.children[request.spec.flow_id]
