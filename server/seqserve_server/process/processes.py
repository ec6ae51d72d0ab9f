"""Starts and ends the processes of the server, keeps from them the signals that are for it, and has
them give back memory."""

import ctypes
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from seqserve.processes import leave_interrupts, signals_held
from seqserve_server.process.logs import LogFormat, LogLevel, configure

TRIM_INTERVAL_S = 5.0
"""Time between two trims; each takes some milliseconds at most."""


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Runs a module with Python; it gets no signal until it calls :func:`ignore_signals`.

    Raises OSError if the system has no room for another process or file.
    """
    with signals_held():
        return subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], **options)


def start_connected(
    module: str, log_format: LogFormat, log_level: LogLevel, sockets: int
) -> tuple[subprocess.Popen[bytes], list[socket.socket]]:
    """Runs a module, which calls :func:`begin`; returns the process and our ends of its sockets."""
    pairs = [socket.socketpair() for _ in range(sockets)]
    with ExitStack() as stack:
        descriptors = [stack.enter_context(theirs).fileno() for _, theirs in pairs]
        process = start(
            module,
            *(log_format.value, log_level.value, *map(str, descriptors)),
            stdin=subprocess.DEVNULL,
            pass_fds=descriptors,
        )
    return process, [ours for ours, _ in pairs]


def begin(arguments: list[str]) -> list[socket.socket]:
    """Leaves signals to the server, sets up the log, and returns the sockets to the server."""
    ignore_signals()
    log_format, log_level, *descriptors = arguments
    configure(LogFormat(log_format), LogLevel(log_level))
    return [socket.socket(fileno=int(each)) for each in descriptors]


def end(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Waits until a process has ended, and kills it after a timeout; blocks.

    Returns its exit status, None if it was killed here; negative is the signal that ended it.
    """
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def ignore_signals() -> None:
    """Leaves the signals to the server, which ends this process once its calls have ended."""
    leave_interrupts(signal.SIGTERM)


def malloc_trim() -> Callable[[int], int] | None:
    """Finds the function that returns freed memory to the system; None if there is none.

    It releases the interpreter lock while it runs. glibc keeps freed memory that lies between
    blocks in use, in an arena for each thread. After thousands of connections, or large answers, it
    would hold most of their memory, and more each time. Source: malloc_trim(3); other C libraries
    lack it or do not need it.
    """
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
