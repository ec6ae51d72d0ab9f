"""A process that was forked while gRPC ran in its parent: gRPC cannot run there.

The child has the memory of gRPC but not its threads, so a call would hang for ever, past its
deadline, or end the process. With GRPC_ENABLE_FORK_SUPPORT=1, gRPC prepares for a fork, but not
its asyncio side. Where the last channel was closed just before, the fork waits until gRPC's threads
have ended, which takes them some milliseconds.
Source: https://github.com/grpc/grpc/blob/master/doc/fork_support.md
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from weakref import WeakSet

import grpc

from seqserve.errors import MisplacedClient

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_TRUE = {"1", "true", "yes", "y", "t"}

_THREADS = "/proc/self/task"
_PATIENCE_S = 1.0
"""Limit on waiting for threads to end: those that are not gRPC's may stay for ever."""


class ForkGuard:
    """Knows what gRPC does in this process, and whether it did so when the process was forked."""

    def __init__(self) -> None:
        """Starts in a process where gRPC does nothing."""
        self._channels: WeakSet[grpc.Channel] = WeakSet()
        self._has_asyncio = False
        self._threads_before: set[int] = set()
        self._is_ending = False
        self._is_broken = False

    def check(self) -> None:
        """Raises :class:`MisplacedClient` if gRPC ran in the parent at the fork."""
        if self._is_broken:
            raise MisplacedClient(
                "this process was forked while a client of its parent was open, so gRPC would hang"
                " in it; close clients before a fork and make new ones after it, or start processes"
                f" by 'spawn', or, without AsyncClient, set {_SUPPORT}=1"
            )

    def open(self, make: Callable[[], grpc.Channel]) -> grpc.Channel:
        """Makes a channel of threads."""
        self._threads_before = self._threads_before or _threads()
        channel = make()
        self._channels.add(channel)
        return channel

    def closed(self, channel: grpc.Channel) -> None:
        """Notes that a channel is closed."""
        self._channels.discard(channel)
        self._is_ending = True

    def opened_asyncio(self) -> None:
        """Notes a channel of asyncio; gRPC's thread for them outlives them."""
        self._has_asyncio = True

    def forking(self) -> None:
        """Waits until gRPC has ended after the last channel, where the system lists threads."""
        if not self._is_ending or self._channels or self._has_asyncio:
            return
        until_s = time.monotonic() + _PATIENCE_S
        while self._has_new_threads() and time.monotonic() < until_s:
            time.sleep(0.001)
        self._is_ending = False

    def _has_new_threads(self) -> bool:
        python_threads = {thread.native_id for thread in threading.enumerate()}
        return bool(_threads() - self._threads_before - python_threads)

    def forked(self) -> None:
        """Notes that this process has been forked."""
        self._threads_before = set()
        has_support = os.environ.get(_SUPPORT, "").lower() in _TRUE
        if self._has_asyncio or (self._channels and not has_support):
            self._is_broken = True


def _threads() -> set[int]:
    """Lists the threads of this process, those of C libraries too; none but on Linux."""
    return set(map(int, os.listdir(_THREADS))) if os.path.isdir(_THREADS) else set()


FORK_GUARD = ForkGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=FORK_GUARD.forking, after_in_child=FORK_GUARD.forked)
