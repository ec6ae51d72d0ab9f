"""Chooses a connection for each call, and opens another one when all are busy.

A server may be several processes that share a port. The system divides connections among them, not
calls, so a client with one connection uses one process.

- A call goes to the connection with the least work in progress.
- A failed call may mean that the process of its connection is away, draining or full. Such calls
  end soon, so the connection would soon have the least work; it is avoided for a while instead, and
  the retry goes to another one.
- A further connection gets its first call when it has answered a health check. So no call waits for
  its handshake, or fails because it could not be made.

A connection is a channel of gRPC, which has one to each server of its target.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from seqserve._transport.status import client_closed
from seqserve.errors import CallError, Cancelled, Overloaded, Unavailable

S = TypeVar("S")

_BUSY = 32
"""Work in progress on every connection at which another one is opened; a unary call is 1. With less
a server process is rarely busy, and each connection costs threads of a client that blocks."""
# The retry comes a little later than the server asks.
_AVOIDED_S, _MOST_ASKED_S = 1.0, 10.0


@dataclass(slots=True, eq=False)
class Opened(Generic[S]):
    """An open connection."""

    stubs: S
    """Object that makes calls on the channel."""
    check: Any = None
    """The health check of a further connection, a call in progress."""
    work: int = 0
    avoided_until_s: float = 0.0


class Place(Generic[S]):
    """A call's place on a connection."""

    __slots__ = ("_balancer", "_opened", "_work", "stubs")

    def __init__(self, balancer: Balancer[S], opened: Opened[S], work: int) -> None:
        self._balancer, self._opened, self._work = balancer, opened, work
        self.stubs = opened.stubs

    def failed(self, error: CallError) -> CallError:
        """Returns the error of the call, after which further calls may avoid the connection."""
        by_server = isinstance(error, Cancelled) and error.by_server
        if by_server or isinstance(error, Unavailable | Overloaded):
            self._balancer.avoid(self._opened, error.retry_after_s)
        return error

    def leave(self) -> None:
        """Ends the call's work; has no effect the second time."""
        work, self._work = self._work, 0
        if work:
            self._balancer.end(self._opened, work)


class Balancer(ABC, Generic[S]):
    """The connections of a client; threads may share them."""

    def __init__(
        self, most: int, servers: int = 1, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Opens nothing yet; ``most`` is for each of the ``servers``, which share the work."""
        self._most, self._busy, self._clock = most, _BUSY * servers, clock
        self._lock = threading.Lock()
        self._ready: list[Opened[S]] = []
        self._opening: Opened[S] | None = None
        self._is_closed = False

    def place(self, work: int = 1) -> Place[S]:
        """Returns a place for a call; opens the first connection, or another one, if need be."""
        with self._lock:
            if self._is_closed:
                raise client_closed()
            chosen = self._chosen()
            chosen.work += work
            if chosen.work >= self._busy and not self._opening and len(self._ready) < self._most:
                self._opening = self._open(is_first=False)
        return Place(self, chosen, work)

    def avoid(self, opened: Opened[S], retry_after_s: float | None) -> None:
        """Avoids a connection for a while, and longer if the server asks for it."""
        asked_s = min(retry_after_s or 0.0, _MOST_ASKED_S)
        opened.avoided_until_s = self._clock() + asked_s + _AVOIDED_S

    def end(self, opened: Opened[S], work: int) -> None:
        """Ends the work of a call."""
        with self._lock:
            opened.work -= work

    def _refuse(self) -> None:
        """Refuses further calls with ``Cancelled``, so nothing is opened any more."""
        with self._lock:
            self._is_closed = True
            # Its call would keep the socket open.
            self._opening = None

    @abstractmethod
    def _open(self, *, is_first: bool) -> Opened[S]:
        """Opens a connection; a further one has a health check."""

    def _chosen(self) -> Opened[S]:
        opening = self._opening
        if opening is not None and opening.check.done():
            opening.check, self._opening = None, None
            self._ready.append(opening)
        ready = self._ready
        if not ready:
            ready.append(self._open(is_first=True))
        if len(ready) == 1:
            return ready[0]
        now_s = self._clock()
        return min(ready, key=lambda each: (each.avoided_until_s > now_s, each.work))
