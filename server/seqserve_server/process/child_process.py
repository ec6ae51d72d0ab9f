"""Starts and ends the processes of the server; keeps from them the signals that are for it."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

# Ctrl-C in a terminal goes to all of its processes, and so may what a service manager sends.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Runs a module with Python; it calls :func:`ignore_signals`, and gets none until it does.

    Args:
        module: The name of the module.
        arguments: What it is given.
        options: Of :class:`subprocess.Popen`.

    Raises:
        OSError: The system has no room for another process or file.
    """
    # A process begins with the mask of the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        return subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(process: subprocess.Popen[bytes], timeout_s: float) -> int | None:
    """Waits until a process has ended, and kills it after a timeout; blocks.

    Returns:
        Its exit status, None if it was killed here. Negative is the signal that ended it: 9 may be
        the system, short of memory.
    """
    try:
        return process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def ignore_signals() -> None:
    """Leaves the signals to the server, which ends this process once its calls have ended."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
