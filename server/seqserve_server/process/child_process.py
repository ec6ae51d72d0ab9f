"""Starts and ends the processes of the server; keeps from them the signals that are for it."""

import signal
import subprocess
import sys
from typing import Any

from seqserve.processes import leave_interrupts, signals_held


def start(module: str, *arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """Runs a module with Python; it gets no signal until it calls :func:`ignore_signals`.

    Raises OSError if the system has no room for another process or file.
    """
    with signals_held():
        return subprocess.Popen([sys.executable, "-P", "-m", module, *arguments], **options)


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
