"""Memory that callers share: of answers that they have not taken yet, and of texts to be read.

A call reserves what its answer may need before the engine begins, gives back what it does not need
once the answer is there, and the rest when the call is over: when the network has taken the answer,
or the call was cancelled. So no caller can fill the server with answers that it does not read.

A caller may hold more while more is free: Choudhury and Hahne 1998, "Dynamic Queue Length
Thresholds", as in the engine's queue. With a share of 1/2 one caller gets half of the memory, two
get a third each, and some always stays free for newcomers. Lives in the event loop.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

from seqserve_server.contract.errors import Bound, InvalidRequest, QueueFull

MAX_WAIT_S = 60.0
"""Longest wait for memory, unless the call asks for a longer one."""
_RETRY_S = 1.0
# Calls that wait hold their requests meanwhile, in this part of the memory.
_WAITING_PART = 1 / 8
# Memory of gRPC and asyncio for a call that waits, without its request.
_WAITING_BYTES = 32 << 10
# A call that needs less of its caller's share need not wait for one that needs more.
_SMALL_SHARE = 1 / 64
_IN_USE = {
    Bound.ANSWERS: "the memory for answers is in use: {}; read the answers of earlier calls first",
    Bound.TEXTS: "the memory for texts is in use: {}; send fewer long texts at a time",
}


class FairShare:
    """Bytes, or places, that callers divide among them."""

    def __init__(self, total: int, caller_share: float) -> None:
        self.total = total
        self._share = caller_share
        self._held: Counter[str] = Counter()
        self.used = 0

    def fits(self, caller: str, size: int) -> bool:
        """Returns whether a caller may hold so many more bytes."""
        free = self.total - self.used - size
        held = self._held[caller] + size
        return free >= 0 and (1.0 - self._share) * held <= self._share * free

    def take(self, caller: str, size: int) -> None:
        """Notes bytes that a caller holds from now on."""
        self._held[caller] += size
        self.used += size

    def give(self, caller: str, size: int) -> None:
        """Notes bytes that a caller holds no longer."""
        self.used -= size
        self._held[caller] -= size
        if not self._held[caller]:
            del self._held[caller]


Item = TypeVar("Item")


class RoundRobin(dict[str, "deque[Item]"]):
    """What callers wait with: those of one caller come in their order, and callers take turns."""

    def add(self, caller: str, item: Item) -> None:
        """Adds an item after those of its caller."""
        self.setdefault(caller, deque()).append(item)

    def remove(self, caller: str, item: Item) -> None:
        """Removes an item whose caller waits no longer."""
        self[caller].remove(item)
        if not self[caller]:
            del self[caller]

    def next(self, may_go: Callable[[str, Item], bool]) -> tuple[str, Item] | None:
        """Takes the first item of the next caller for whom it may go; None if there is none."""
        for caller, items in self.items():
            if may_go(caller, items[0]):
                item = items.popleft()
                del self[caller]
                if items:
                    self[caller] = items
                return caller, item
        return None


@dataclass(slots=True, eq=False)
class _Waiting:
    size: int
    granted: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class FairMemory:
    """Memory of one kind, of all calls of a server."""

    def __init__(
        self,
        max_bytes: int = 256_000_000,
        caller_share: float = 0.5,
        *,
        bound: Bound = Bound.ANSWERS,
    ) -> None:
        self._bound = bound
        self.max_per_caller = int(max_bytes * caller_share)
        """Most bytes that one caller can reserve."""
        self._held = FairShare(max_bytes, caller_share)
        self._requests = FairShare(int(max_bytes * _WAITING_PART), caller_share)
        self._waiting: RoundRobin[_Waiting] = RoundRobin()

    @property
    def reserved_bytes(self) -> int:
        """Bytes that are reserved now."""
        return self._held.used

    @property
    def num_waiting(self) -> int:
        """Calls that wait for memory."""
        return sum(map(len, self._waiting.values()))

    async def reserve(
        self, caller: str, size: int, *, held_bytes: int = 0, max_wait_s: float = MAX_WAIT_S
    ) -> Reservation:
        """Waits until a caller may hold so many more bytes, after its own earlier calls.

        A small call passes large ones. It holds ``held_bytes`` meanwhile. Raises QueueFull if too
        many calls wait already, or if it has waited too long.
        """
        is_small = size <= _SMALL_SHARE * self.max_per_caller
        is_behind = caller in self._waiting and not is_small
        if is_behind or not self._held.fits(caller, size):
            await self._wait(caller, size, _WAITING_BYTES + held_bytes, max_wait_s)
        else:
            self._held.take(caller, size)
        return Reservation(self, caller, size)

    async def _wait(self, caller: str, size: int, held_bytes: int, max_wait_s: float) -> None:
        if not self._requests.fits(caller, held_bytes):
            raise self._full("calls wait for it already")
        waiting = _Waiting(size)
        self._waiting.add(caller, waiting)
        self._requests.take(caller, held_bytes)
        try:
            async with asyncio.timeout(None if max_wait_s == math.inf else max_wait_s):
                await waiting.granted
        except BaseException as error:
            if waiting.granted.done() and not waiting.granted.cancelled():
                # The turn came when it was no longer wanted.
                self.give(caller, size)
            else:
                self._waiting.remove(caller, waiting)
                # It may have been in the way of a smaller one.
                self._grant()
            if isinstance(error, TimeoutError):
                raise self._full(f"none was free for {max_wait_s:.3g} s") from None
            raise
        finally:
            self._requests.give(caller, held_bytes)

    def _full(self, reason: str) -> QueueFull:
        return QueueFull(_IN_USE[self._bound].format(reason), _RETRY_S, self._bound)

    def give(self, caller: str, size: int) -> None:
        """Takes bytes back, and lets waiting calls have them."""
        self._held.give(caller, size)
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        """Serves the callers in turn, as long as the first call of any caller fits."""
        while turn := self._waiting.next(self._may_go):
            caller, waiting = turn
            self._held.take(caller, waiting.size)
            waiting.granted.set_result(None)

    def _may_go(self, caller: str, waiting: _Waiting) -> bool:
        # A cancelled waiter removes itself.
        return not waiting.granted.done() and self._held.fits(caller, waiting.size)


class Reservation:
    """Bytes that one call holds."""

    def __init__(self, memory: FairMemory, caller: str, size: int) -> None:
        self._memory = memory
        self._caller = caller
        self.size = size

    def shrink(self, size: int) -> None:
        """Keeps so many bytes, if they are fewer, and gives back the others."""
        if size < self.size:
            others, self.size = self.size - size, size
            self._memory.give(self._caller, others)

    def release(self) -> None:
        """Releases all bytes; a second call does nothing."""
        self.shrink(0)


PEER: ContextVar[str] = ContextVar("peer", default="")
"""The peer of the call whose task this is; empty where grpcio serves its calls itself."""
HELD: ContextVar[set[Reservation]] = ContextVar("held")
"""Memory that the call whose task this is holds from its message to its end."""


def held() -> set[Reservation]:
    """Returns what :data:`HELD` has; begins it where grpcio serves its calls itself."""
    try:
        return HELD.get()
    except LookupError:
        HELD.set(set())
        return HELD.get()


def release_all(reservations: set[Reservation]) -> None:
    """Releases all bytes of some reservations."""
    for reservation in reservations:
        reservation.release()
    reservations.clear()


# Memory of gRPC and asyncio for a call, and for each of its sources.
_CALL_BYTES, _SOURCE_BYTES = 16 << 10, 4 << 10


def held_bytes(size: int, sources: int = 1) -> int:
    """Computes a call's memory for an answer of a size: the message, and gRPC's copy."""
    return 2 * size + _CALL_BYTES + sources * _SOURCE_BYTES


@dataclass(frozen=True, slots=True)
class AnswerSize:
    """Most bytes of an answer on the wire, by the field of the request that causes them."""

    parts: dict[str, int]
    sources: int = 1
    unit: str = "sources"

    @property
    def each(self) -> int:
        """Bytes of one source on the wire."""
        return sum(self.parts.values())

    @property
    def held_bytes(self) -> int:
        """Memory that the call may hold."""
        return held_bytes(self.sources * self.each, self.sources)

    def checked(self, max_bytes: int) -> int:
        """Returns what the call may hold, for which there may be room."""
        needed = self.held_bytes
        if needed <= max_bytes:
            return needed
        field = max(self.parts, key=self.parts.__getitem__)
        of = f"the answers to {self.sources:,} {self.unit}" if self.sources > 1 else "the answer"
        fewer = f"fewer {self.unit} in a call, " if self.sources > 1 else ""
        raise InvalidRequest(
            field,
            f"makes {of} need up to {_megabytes(needed)} MB; this server has"
            f" {_megabytes(max_bytes)} MB for one caller: ask for less, {fewer}or a lower"
            " max_decoding_length",
        )


def _megabytes(size: int) -> str:
    return f"{math.ceil(size / 1e6):,}"
