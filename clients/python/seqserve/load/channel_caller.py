"""What callers over gRPC share: one channel, no retries."""

from __future__ import annotations

import asyncio
import math
from abc import ABC, abstractmethod
from typing import Any, Self

import grpc.aio

from seqserve._transport.connection import Connection
from seqserve._transport.status import error_of_call
from seqserve.arguments import MAX_MESSAGE_BYTES
from seqserve.errors import Unreachable
from seqserve.load.answer import Reply
from seqserve.tls import TLS

_CONNECT_S = 10.0


class ChannelCaller(ABC):
    """Calls one server, or several in turn; every call counts, so none is repeated."""

    def __init__(self, target: str, tls: TLS | None, token: str | None) -> None:
        """Takes what to call, as :class:`~seqserve.Client` describes it."""
        self._target, self._tls, self._token = target, tls, token

    async def __aenter__(self) -> Self:
        """Connects.

        Raises:
            OptionError: The target, the token or a file of TLS is wrong.
            Unreachable: There is no connection within ten seconds.
            CallError: The server refuses a call that must come before all others.
        """
        connection = Connection(self._target, MAX_MESSAGE_BYTES, self._tls, self._token)
        self._metadata = connection.metadata()
        self._channel = connection.aio_channel()
        try:
            await asyncio.wait_for(self._channel.channel_ready(), _CONNECT_S)
            await self._begin(self._channel)
        except TimeoutError:
            await self.__aexit__()
            reason = f"no connection to {self._target} within {_CONNECT_S:g} s"
            raise Unreachable("UNAVAILABLE", reason) from None
        except grpc.aio.AioRpcError as failed:
            await self.__aexit__()
            raise error_of_call(failed) from None
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the channel."""
        await self._channel.close(grace=None)

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""
        try:
            return await self._answered(source, self._call(timeout_s))
        except grpc.aio.AioRpcError as failed:
            return Reply(error=failed.code().name, details=error_of_call(failed).details)

    def _call(self, timeout_s: float) -> dict[str, Any]:
        """Returns what each call carries."""
        limit = {} if math.isinf(timeout_s) else {"timeout": timeout_s}
        return {"metadata": self._metadata, **limit}

    @abstractmethod
    async def _begin(self, channel: Any) -> None:
        """Takes the channel, which is ready."""

    @abstractmethod
    async def _answered(self, source: str, call: dict[str, Any]) -> Reply:
        """Sends a text and waits; an error of gRPC is raised."""
