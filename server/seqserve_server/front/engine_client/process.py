"""The process of an engine: how it is started and ended, its statistics and its heartbeats."""

import asyncio
import logging
import socket
import subprocess
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack

from seqserve_server.contract.messages import GetStats, Message, Setup, encode_message
from seqserve_server.contract.stats import EngineStats, StatsReply
from seqserve_server.process import child_process, logs
from seqserve_server.process.logs import LogFormat, LogLevel

# Heartbeats are compared several times within the limit, so that a pause of the whole machine, as
# of a suspended VM, fails one comparison, not all.
_STALL_CHECKS = 10


class EngineProcess:
    """A process that runs one engine, and the front's end of its socket."""

    module = "seqserve_server.engine"
    """The module that the process runs."""

    def __init__(
        self,
        setup: Setup,
        log_format: LogFormat,
        log_level: LogLevel,
        *,
        is_shared: bool = False,
        end_timeout_s: float = 10.0,
    ) -> None:
        """Starts the process and sends it the setup; :meth:`connect` is for one that ``is_shared``.

        :meth:`end` kills it after ``end_timeout_s``: a step may be running, and warming up takes
        a while on a slow machine.
        """
        self._label = "/".join(setup.folder.parts[-2:])
        self._end_timeout_s = end_timeout_s
        pairs = [socket.socketpair() for _ in range(1 + is_shared)]
        self.channel, *self._doors = (ours for ours, _ in pairs)
        with ExitStack() as stack:
            descriptors = [stack.enter_context(theirs).fileno() for _, theirs in pairs]
            self._process = child_process.start(
                self.module,
                *(log_format.value, log_level.value, *map(str, descriptors)),
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
            )
        self.channel.sendall(encode_message(setup))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def connect(self) -> socket.socket:
        """Returns our end of a further socket, for another front."""
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._doors[0], [b"c"], [theirs.fileno()])
        return ours

    def end(self) -> None:
        """Waits until the process has ended, and kills it after a timeout; blocks."""
        for door in self._doors:
            door.close()
        status = child_process.end(self._process, self._end_timeout_s)
        if status is None:
            # Not its fault if it was still loading a model that was refused meanwhile.
            fields = {"model": self._label, "seconds": self._end_timeout_s}
            logs.event("engine process did not end and was killed", fields, logging.WARNING)
        elif status:
            fields = {"model": self._label, "status": status}
            logs.event("engine process ended abnormally", fields, logging.ERROR)


class StatsClient:
    """The statistics of one engine, over all its processes; lives in the event loop."""

    def __init__(self, send: Callable[[Message], None]) -> None:
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
        self.last_reply = reply._replace(stats=self._past + reply.stats)
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
