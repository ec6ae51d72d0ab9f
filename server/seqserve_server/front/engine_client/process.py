"""The process of an engine: how it is started and ended, and its state."""

from __future__ import annotations

import logging
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from seqserve_server.contract import child_process, logs
from seqserve_server.contract.logs import LogFormat, LogLevel
from seqserve_server.contract.messages import Setup, encode_message


class HostProcess(Protocol):
    """The process of an engine."""

    channel: socket.socket
    """Our end of the socket; the setup message has been sent."""

    @property
    def pid(self) -> int:
        """The process id."""

    def end(self) -> None:
        """Waits until the process has ended, and kills it after a timeout; blocks."""


class EngineProcess:
    """A process that runs one engine, and the front's end of its socket."""

    def __init__(
        self,
        setup: Setup,
        log_format: LogFormat,
        log_level: LogLevel,
        *,
        end_timeout_s: float = 10.0,
    ) -> None:
        """Starts the process and sends it the setup.

        Args:
            setup: The model to load.
            log_format: Format of its log lines, which go to the same stream as the front's.
            log_level: Level of its log lines.
            end_timeout_s: How long :meth:`end` waits before it kills the process; a step may be
                under way, and warming up takes a while on a slow machine.
        """
        self._label = "/".join(setup.folder.parts[-2:])
        self._end_timeout_s = end_timeout_s
        self.channel, theirs = socket.socketpair()
        with theirs:
            self._process = child_process.start(
                "seqserve_server.engine",
                *(str(theirs.fileno()), log_format.value, log_level.value),
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.channel.sendall(encode_message(setup))

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def end(self) -> None:
        """Waits until the process has ended, and kills it after a timeout; blocks."""
        status = child_process.end(self._process, self._end_timeout_s)
        if status is None:
            # Not its fault if it was still loading a model that was refused meanwhile.
            fields = {"model": self._label, "seconds": self._end_timeout_s}
            logs.event("engine process did not end and was killed", fields, logging.WARNING)
        elif status:
            fields = {"model": self._label, "status": status}
            logs.event("engine process ended abnormally", fields, logging.ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """The state of one engine process, or of all processes of a version."""

    is_up: bool
    """Whether requests can be taken."""
    is_ready: bool
    """Whether requests can be taken by a process that has not failed again and again."""
    last_error: str
    """Why no process is ready; empty if one is."""
    restarts: int
    """Starts after the first one of each process, whether or not they succeeded."""
    pids: tuple[int, ...]
    """Ids of the processes that there are now."""

    @classmethod
    def total(cls, engines: Sequence[EngineStatus]) -> EngineStatus:
        """Adds up the processes of one version."""
        is_ready = any(engine.is_ready for engine in engines)
        return cls(
            is_up=any(engine.is_up for engine in engines),
            is_ready=is_ready,
            last_error="" if is_ready else engines[0].last_error,
            restarts=sum(engine.restarts for engine in engines),
            pids=tuple(pid for engine in engines for pid in engine.pids),
        )
