"""A process that was forked while gRPC ran in its parent: gRPC cannot run there.

The child has the memory of gRPC but not its threads, so a call would hang for ever, past its
deadline, or end the process. With GRPC_ENABLE_FORK_SUPPORT=1, gRPC prepares for a fork, but not its
asyncio side.
Source: https://github.com/grpc/grpc/blob/master/doc/fork_support.md
"""

from __future__ import annotations

import os
from typing import Any
from weakref import WeakSet

from seqserve.errors import MisplacedClient

_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
_TRUE = {"1", "true", "yes", "y", "t"}


class ForkGuard:
    """Knows what gRPC does in this process, and whether it did so when the process was forked."""

    def __init__(self) -> None:
        """Starts in a process where gRPC does nothing."""
        self._channels: WeakSet[Any] = WeakSet()
        self._has_asyncio = False
        self._is_broken = False

    def check(self) -> None:
        """Raises :class:`MisplacedClient` if gRPC ran in the parent at the fork."""
        if self._is_broken:
            raise MisplacedClient(
                "this process was forked while a client of its parent was open, so gRPC would hang"
                " in it; close clients before a fork and make new ones after it, or start processes"
                f" by 'spawn', or, without AsyncClient, set {_SUPPORT}=1"
            )

    def opened(self, channel: Any) -> None:
        """Notes a channel of threads."""
        self._channels.add(channel)

    def closed(self, channel: Any) -> None:
        """Notes that a channel is closed."""
        self._channels.discard(channel)

    def opened_asyncio(self) -> None:
        """Notes a channel of asyncio; gRPC's thread for them outlives them."""
        self._has_asyncio = True

    def forked(self) -> None:
        """Notes that this process has been forked."""
        has_support = os.environ.get(_SUPPORT, "").lower() in _TRUE
        if self._has_asyncio or (self._channels and not has_support):
            self._is_broken = True


FORK_GUARD = ForkGuard()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=FORK_GUARD.forked)
