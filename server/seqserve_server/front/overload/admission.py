"""Admits calls on arrival, as many as the front can serve soon; the others are refused.

A call costs the front most of a millisecond, and its refusal by the engine's queue hardly less.
Beyond what the front can serve, calls are refused before anything is done for them: no task, no
interceptor, no reading of the request. So admitted calls are served soon. Places are divided fairly
among callers, by the rule of the engine's queue. Used in the event loop.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from seqserve_server.contract.errors import Bound, QueueFull
from seqserve_server.contract.request import Priority
from seqserve_server.front.engine_client.engine import QueueKey, RefusalCache
from seqserve_server.front.overload.memory import FairMemory, FairShare, Reservation
from seqserve_server.front.telemetry.call_record import method_name
from seqserve_server.process import logs

_LONGEST_S = 0.3
"""Approximate maximum wait of an accepted call; people hardly notice it."""
_FEWEST, _MOST = 128, 256
"""Bounds of how many calls of a caller that is alone may wait, however fast they are served. As
many as there are slots always may: when rows end together, as many calls follow."""
# Time to serve a call, as long as none was measured, and the weight of each new measurement.
_INTERVAL_S = 0.001
_WEIGHT = 0.05
_CALLER_SHARE = 0.5

_LOG_INTERVAL_S = 1.0
_GENERATION = "/seqserve.v1.GenerationService/"
_ENGINE_METHODS = (
    *(f"{_GENERATION}{name}" for name in ("Generate", "GenerateStream", "GenerateBatch")),
    *(f"{_GENERATION}{name}" for name in ("GenerateBulk", "Score", "Attention")),
    *(f"{_GENERATION}{name}" for name in ("Tokenize", "Detokenize")),
    "/inference.GRPCInferenceService/ModelInfer",
)
_STREAM = f"{_GENERATION}GenerateBulk"

# Messages of calls that are served; each takes some times as much until its call is over.
_MESSAGE_BYTES = 64 << 20
# Streams, and calls of health and models, hardly all send a message of the largest size at once.
_MANY = 8

Context = grpc.aio.ServicerContext[Any, Any]


def _caller(method: str, peer: str) -> str:
    # A peer that has too many streams can still call, and with too many calls ask for health.
    if method == _STREAM:
        return f"/{peer}"
    return peer if method in _ENGINE_METHODS else f"{peer}/"


class MessageMemory(FairMemory):
    """Memory for the messages of calls that are served; before, gRPC keeps a window of one."""

    def __init__(self, max_message_bytes: int) -> None:
        super().__init__(max(_MESSAGE_BYTES, 4 * max_message_bytes))
        self._most = max_message_bytes
        self.on_free: Callable[[], None] = lambda: None
        """Called when there is more, after a call did not get any."""
        self._is_missed = False
        self.unread: dict[Reservation, object] = {}
        """Calls of one message that has not come yet, in their order."""

    def take(self, method: str, peer: str, call: object = None) -> Reservation | None:
        """Reserves memory for a call, unless its peer has too much already."""
        is_one = method in _ENGINE_METHODS and method != _STREAM
        size = self._most if is_one else self._most // _MANY
        caller = _caller(method, peer)
        if not self._held.fits(caller, size):
            self._is_missed = True
            return None
        self._held.take(caller, size)
        message = _Message(self, caller, size)
        if is_one:
            self.unread[message] = call
        return message

    def give(self, caller: str, size: int) -> None:
        """Takes bytes back."""
        super().give(caller, size)
        if self._is_missed:
            self._is_missed = False
            self.on_free()


class _Message(Reservation):
    _memory: MessageMemory

    def shrink(self, size: int) -> None:
        # It is there, or its call is over.
        self._memory.unread.pop(self, None)
        super().shrink(size)


class PendingCalls:
    """Bounds the calls that have arrived and wait to be served."""

    def __init__(self, slots: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._places = FairShare(0, _CALLER_SHARE)
        self._fewest, self._most = max(_FEWEST, slots), max(_MOST, slots)
        self._clock = clock
        self._served_s, self._is_busy = clock(), False
        self._interval_s = _INTERVAL_S
        self._refusals = RefusalCache(clock)

    def __len__(self) -> int:
        return self._places.used

    def enter(self, caller: str) -> None:
        """Adds a call."""
        served = int(_LONGEST_S / self._interval_s)
        self._places.total = int(min(max(served, self._fewest), self._most) / _CALLER_SHARE)
        if not self._places.fits(caller, 1):
            wait_s = len(self) * self._interval_s
            reason = f"{len(self)} calls wait for the server already"
            full = QueueFull(reason, wait_s, Bound.BACKLOG, self._interval_s)
            raise self._refusals.refused(QueueKey(caller, "", Priority.NORMAL), full)
        self._places.take(caller, 1)

    def leave(self, caller: str) -> None:
        """Removes a call that is served now, or has ended while it waited."""
        now_s = self._clock()
        self._places.give(caller, 1)
        if self._is_busy:
            interval_s = min(now_s - self._served_s, _LONGEST_S)
            self._interval_s += _WEIGHT * (interval_s - self._interval_s)
        self._served_s, self._is_busy = now_s, len(self) > 0


class Admission:
    """Decides about each call that arrives; the log has one line a second for all refusals."""

    def __init__(
        self,
        peer_of: Callable[[Context], str],
        refuse: Callable[[str, Context, QueueFull], Awaitable[None]],
        max_message_bytes: int,
        slots: int,
    ) -> None:
        """Starts without calls; ``refuse`` ends a call of a method with an error, and counts it."""
        self.peer_of = peer_of
        self.messages = MessageMemory(max_message_bytes)
        self._refuse = refuse
        self._pending = PendingCalls(slots)
        self._refused: Counter[str] = Counter()

    async def admits(self, method: str, context: Context, peer: str) -> bool:
        """Returns whether a call of a peer may wait to be served; if not, the call has ended."""
        try:
            self._pending.enter(_caller(method, peer))
        except QueueFull as full:
            if not self._refused:
                asyncio.get_running_loop().call_later(_LOG_INTERVAL_S, self._log)
            self._refused[method] += 1
            await self._refuse(method, context, full)
            return False
        return True

    def accept(self, method: str, peer: str, call: object) -> set[Reservation] | None:
        """Has an admitted call served now; returns the memory of its message, or None."""
        reservation = self.messages.take(method, peer, call)
        if reservation is None:
            return None
        self._pending.leave(_caller(method, peer))
        return {reservation}

    def _log(self) -> None:
        for method, calls in self._refused.items():
            facts = {"method": method_name(method), "calls": calls}
            logs.event("calls refused on arrival", facts)
        self._refused.clear()
