"""Starts an engine's process and ends it."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys

from seqserve_server.contract.logs import LogFormat, LogLevel
from seqserve_server.contract.messages import Setup, encode_message

# A step may be under way, and warming up takes a while on a slow machine.
_PATIENCE_S = 10.0

_log = logging.getLogger(__name__)


class EngineProcess:
    """The server's end."""

    def __init__(self, setup: Setup, log_format: LogFormat, log_level: LogLevel) -> None:
        """Begins the process and tells it what to load.

        Args:
            setup: What to load.
            log_format: Of its log lines, which go where the server's go.
            log_level: Of its log lines.
        """
        self.channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-P", "-m", "seqserve_server.engine"),
                    *(str(theirs.fileno()), log_format.value, log_level.value),
                ],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        self.channel.sendall(encode_message(setup))

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def end(self) -> None:
        """Waits until it has ended, and makes it where it does not; blocks."""
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            # No fault of its own where it was still loading what was refused meanwhile.
            _log.warning("an engine's process did not end in %g s and was killed", _PATIENCE_S)
            return
        if self._process.returncode:
            # Negative is the signal that ended it: 9 may be the system, short of memory.
            _log.error("an engine's process ended with status %d", self._process.returncode)
