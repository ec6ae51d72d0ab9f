"""Processes that a command starts, and that leave Ctrl-C to it.

Ctrl-C in a terminal goes to all processes of a command. One that has only begun would end with a
traceback, because it imports what it needs before it can say that it does not want it.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any


def spawn(target: Callable[..., None], *arguments: Any) -> BaseProcess:
    """Starts a process that runs a function; it calls :func:`leave_interrupts`, and gets none until
    it does."""
    # Not a fork: threads of this process, and those of its libraries, would be lost in it.
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=target, args=arguments, daemon=True)
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        process.start()
        return process
    from multiprocessing.resource_tracker import ensure_running

    # It lets interrupts through when it begins, which would be in `start` otherwise.
    ensure_running()
    # A process begins with the mask of the thread that starts it.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def leave_interrupts() -> None:
    """Ignores interrupts: the process that has started this one ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
