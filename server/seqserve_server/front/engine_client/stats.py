"""Requests statistics from an engine's process, and watches its heartbeats."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

from seqserve_server.contract.messages import GetStats, Message, StatsReply
from seqserve_server.contract.stats import EngineStats

# Heartbeats are compared several times within the limit, so that a pause of the whole machine, such
# as a suspended VM, fails one comparison, not all.
_STALL_CHECKS = 10


class StatsClient:
    """The statistics of one engine, over all its processes; lives in the event loop."""

    def __init__(self, send: Callable[[Message], None]) -> None:
        """Starts without statistics."""
        self._send = send
        self._waiting: deque[Future[StatsReply]] = deque()
        # Statistics of processes that have ended: counters never fall.
        self._past = EngineStats()
        self.last_reply = StatsReply(0, 0, EngineStats())
        """The newest statistics."""

    def request(self, reply: Future[StatsReply]) -> None:
        """Requests statistics from the process; ``reply`` gets them."""
        self._waiting.append(reply)
        self._send(GetStats())

    def receive(self, reply: StatsReply) -> None:
        """Handles the reply to the oldest question."""
        total = EngineStats()
        total.add(self._past)
        total.add(reply.stats)
        self.last_reply = reply._replace(stats=total)
        self._answer_next()

    def lost(self) -> None:
        """Keeps the statistics of a process that has ended, and answers open questions."""
        self._past = self.last_reply.stats
        self.last_reply = StatsReply(0, 0, self._past)
        self.answer_all()

    def answer_all(self) -> None:
        """Answers open questions with the newest statistics."""
        while self._waiting:
            self._answer_next()

    def _answer_next(self) -> None:
        reply = self._waiting.popleft()
        # The waiting task may already be cancelled.
        if reply.set_running_or_notify_cancel():
            reply.set_result(self.last_reply)

    async def until_stalled(self, stall_s: float) -> None:
        """Returns once a thread of the process has made no progress for ``stall_s``."""
        seen: tuple[int, ...] = ()
        checks = 0
        while checks < _STALL_CHECKS:
            self.request(Future())
            await asyncio.sleep(stall_s / _STALL_CHECKS)
            heartbeats = self.last_reply.heartbeats
            if heartbeats and all(
                now != before for now, before in zip(heartbeats, seen, strict=False)
            ):
                seen, checks = heartbeats, 0
            else:
                checks += 1
