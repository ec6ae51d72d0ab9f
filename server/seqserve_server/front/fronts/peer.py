"""Calls between the main process and a front, over a socket without a name.

Each end calls handlers of the other by name. Calls begin in the order in which they were sent.
Messages are pickles, because both ends are ours and no other process can reach the socket.
"""

import asyncio
import inspect
import itertools
import pickle
import socket
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, cast

from seqserve.errors import SeqserveError
from seqserve_server.contract.messages import Frames, frame

Handler: TypeAlias = Callable[..., Any]
"""A function or coroutine function; the caller gets its result, or its error."""


class _Call(NamedTuple):
    number: int
    name: str
    arguments: tuple[Any, ...]


class _Answer(NamedTuple):
    number: int
    value: Any
    error: BaseException | None


def handlers_of(*functions: Handler) -> dict[str, Handler]:
    """Returns what the other end may call, by name."""
    return {each.__name__.lstrip("_"): each for each in functions}


class PeerGoneError(ConnectionError):
    """The other process has ended."""


class Peer(asyncio.Protocol):
    """One end; used in the event loop."""

    def __init__(self, handlers: Mapping[str, Handler], on_gone: Callable[[], None]) -> None:
        """Takes what the other end may call; ``on_gone`` is called at its end."""
        self._handlers = handlers
        self._on_gone = on_gone
        self._transport: asyncio.WriteTransport | None = None
        self._frames = Frames()
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self, channel: socket.socket) -> Self:
        """Takes a socket, and returns itself."""
        channel.setblocking(False)
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=channel)
        return self

    async def call(self, name: str, *arguments: Any) -> Any:
        """Calls a handler of the other end; raises its error, or PeerGoneError if it has ended."""
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(_Call(number, name, arguments))
            return await future
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """Closes the socket; calls that wait fail."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerGoneError("the other process has ended"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Takes the transport of the socket."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exception: Exception | None) -> None:
        """Fails the calls that wait, if the other end is gone."""
        if self._transport is not None:
            self.close()
            self._on_gone()

    def data_received(self, data: bytes) -> None:
        """Begins calls, and takes answers."""
        for body in self._frames.feed(data):
            message = pickle.loads(body)
            if isinstance(message, _Call):
                task = asyncio.create_task(self._serve(message))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
                continue
            future = self._waiting.get(message.number)
            # Its caller may have left.
            if future is None or future.done():
                continue
            if message.error is not None:
                future.set_exception(message.error)
            else:
                future.set_result(message.value)

    async def _serve(self, call: _Call) -> None:
        value, error = None, None
        try:
            value = self._handlers[call.name](*call.arguments)
            if inspect.isawaitable(value):
                value = await value
        except SeqserveError as failure:
            error = failure
        except Exception as failure:
            # The error may come from a library, and be impossible to pickle.
            error = SeqserveError(f"{type(failure).__name__}: {failure}")
        if self._transport is not None:
            self._send(_Answer(call.number, None if error else value, error))

    def _send(self, message: _Call | _Answer) -> None:
        if self._transport is None:
            raise PeerGoneError("the other process has ended")
        self._transport.write(frame(pickle.dumps(message)))
