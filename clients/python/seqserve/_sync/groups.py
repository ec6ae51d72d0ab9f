# Generated from seqserve/_async/groups.py by `make clients`; do not edit.
"""Calls that can be cancelled together, and the waits between their retries.

Closing the client, or leaving an iteration over many calls, cancels the calls under way and wakes
those that wait to be retried.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator

from google.protobuf.message import Message

from seqserve._concurrency.threads import Event
from seqserve._sync.transport import Call, Transport
from seqserve._transport.method import Method
from seqserve._transport.status import client_closed


class CallGroup:
    """Calls of one transport that can be cancelled together; new ones then raise ``Cancelled``."""

    def __init__(self, transport: Transport) -> None:
        """Opens its calls through a transport, which it does not close."""
        self._transport = transport
        self._lock = threading.Lock()
        self._is_cancelled = Event()
        self._members: weakref.WeakSet[Call | CallGroup] = weakref.WeakSet()

    def call(
        self, method: Method, request: Message | Iterator[Message], timeout_s: float | None
    ) -> Call:
        """Sends one request, or the requests of an iterator."""
        self._check()
        call = self._transport.call(method, request, timeout_s)
        self._add(call)
        return call

    def group(self) -> CallGroup:
        """Makes a group within this one, which can be cancelled by itself."""
        group = CallGroup(self._transport)
        self._add(group)
        return group

    def wait(self, delay_s: float) -> None:
        """Returns after a delay, or raises as soon as the group is cancelled."""
        self._is_cancelled.wait(delay_s)
        self._check()

    def cancel(self) -> None:
        """Cancels the calls under way, ends the waits, and refuses new calls."""
        with self._lock:
            self._is_cancelled.set()
            members = list(self._members)
        for member in members:
            member.cancel()

    def _add(self, member: Call | CallGroup) -> None:
        with self._lock:
            if not self._is_cancelled.is_set():
                self._members.add(member)
                return
        member.cancel()
        raise client_closed()

    def _check(self) -> None:
        if self._is_cancelled.is_set():
            raise client_closed()
