"""The gRPC server of the gateway: one client for every form, and metadata of each call.

A call of the client carries the metadata of the HTTP request in whose task it is made: a variable
of the context holds it, and the client reads it for every attempt.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from google.protobuf.message import Message

from seqserve import AsyncClient
from seqserve._async.calls import CallGroup, messages_of
from seqserve._transport.channels import AsyncGrpcTransport
from seqserve._transport.connection import Connection, Method
from seqserve.address import is_local
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.auth import metadata_of
from seqserve.errors import OptionError
from seqserve.retry import Attempts, Availability, RetryPolicy
from seqserve.tls import TLS
from seqserve_gateway.admission import Turns
from seqserve_gateway.failure import Failure
from seqserve_gateway.readers import Readers

T = TypeVar("T")
Pairs = tuple[tuple[str, str], ...]
METADATA: ContextVar[Pairs] = ContextVar("metadata", default=())
"""Metadata of the calls that the current task makes."""
_MOST_TEXTS, _MOST_OWN_TEXTS = 320, 256
"""Texts of all arrays, and of the arrays of one caller, on the server: no more than its slots and
the share of its queue that it gives a gateway."""
_LEAST_TEXTS = 128
"""A batch of an array takes its places at once."""
_READERS = 2
_RECENT_S = 5.0
_MOST_RECENT = 16


class Upstream:
    """A client of the server, and its calls as messages of ``seqserve.v1``."""

    def __init__(
        self,
        target: str,
        *,
        timeout_s: float = 30.0,
        tls: TLS | None = None,
        token: str | None = None,
        retry: RetryPolicy | None = None,
        connections: int | None = None,
        processes: int = 1,
    ) -> None:
        """Takes the arguments of :class:`~seqserve.AsyncClient`, for one of several processes.

        Callers without a token may use ``token``.
        """
        self.timeout_s = timeout_s
        """Time for a request that asks for no other."""
        texts = (_MOST_TEXTS, _MOST_OWN_TEXTS)
        self.turns = Turns(*(max(each // processes, _LEAST_TEXTS) for each in texts))
        """For the batches of arrays."""
        self.readers = Readers(max(_READERS // processes, 1))
        """For documents."""
        self._recent: dict[Hashable, tuple[float, Any]] = {}
        self.is_private = tls is not None or is_local(target)
        """Whether tokens of callers may be sent: by TLS, or to this machine."""
        self._own = metadata_of(token, is_private=self.is_private)
        connection = Connection(
            target, MAX_MESSAGE_BYTES, tls, metadata=self._metadata, connections=connections
        )
        transport = AsyncGrpcTransport(connection)
        self._retry = retry or RetryPolicy()
        self._calls, self._availability = CallGroup(transport), Availability(target)
        self.client = AsyncClient(
            target, timeout_s=timeout_s, retry=self._retry, transport=transport
        )

    async def recent(self, key: Hashable, listing: Callable[[], Awaitable[T]]) -> T:
        """Returns a listing of the last seconds for a key, or a new one."""
        until_s, answer = self._recent.pop(key, (0.0, None))
        if until_s <= time.monotonic():
            answer = await listing()
            until_s = time.monotonic() + _RECENT_S
        self._recent[key] = (until_s, answer)
        while len(self._recent) > _MOST_RECENT:
            del self._recent[next(iter(self._recent))]
        return cast(T, answer)

    def messages(
        self, method: Method, request: Message, timeout_s: float
    ) -> AsyncGenerator[Any, None]:
        """Yields the messages of a call, exactly as the server sends them.

        Closing the generator cancels the call.
        """
        attempts = Attempts(self._retry, timeout_s, self._availability)
        return messages_of(self._calls, method, request, attempts)

    def authorization(self, token: str | None) -> Pairs:
        """Returns the metadata for a caller's token; without one, for the gateway's own.

        A token is left out where it would cross the network in clear: a server that wants one then
        refuses the call.
        """
        if token is None:
            return self._own
        if not self.is_private:
            return ()
        try:
            return metadata_of(token, is_private=True)
        except OptionError:
            raise Failure("UNAUTHENTICATED", "no valid token") from None

    async def close(self) -> None:
        """Cancels the calls in progress and closes the channel."""
        self._calls.cancel()
        self.readers.close()
        await self.client.close()

    def _metadata(self) -> Pairs:
        # Without a request, as for a probe, the gateway calls for itself.
        return METADATA.get() or self._own
