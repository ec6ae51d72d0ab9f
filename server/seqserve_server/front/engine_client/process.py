"""Starts an engine's process and ends it."""

from __future__ import annotations

import logging
import socket
import subprocess

from seqserve_server.contract.messages import Setup, encode_message
from seqserve_server.process import child_process, logs
from seqserve_server.process.logs import LogFormat, LogLevel


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
