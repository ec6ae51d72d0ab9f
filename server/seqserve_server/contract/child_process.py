"""Starts the processes of the server, and keeps from them the signals that are for it."""

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


def ignore_signals() -> None:
    """Leaves the signals to the server, which ends this process once its calls have ended."""
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
