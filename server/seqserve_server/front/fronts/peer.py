"""Calls between the main process and a front, over a socket without a name.

Each end calls handlers of the other by name. Calls begin in the order in which they were sent. A
call may bring a socket, which its handler gets as the last argument (``SCM_RIGHTS``, unix(7)).
Messages are pickles, because both ends are ours and no other process can reach the socket.
"""

import asyncio
import inspect
import itertools
import pickle
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from seqserve.errors import SeqserveError
from seqserve_server.contract.messages import Frames, frame

Handler: TypeAlias = Callable[..., Any]
"""A function or coroutine function; the caller gets its result, or its error."""
_PIECE_BYTES = 1 << 18
_MAX_SOCKETS = 16


class _Call(NamedTuple):
    number: int
    name: str
    arguments: tuple[Any, ...]
    has_socket: bool


class _Answer(NamedTuple):
    number: int
    value: Any
    error: BaseException | None


def handlers_of(*functions: Handler) -> dict[str, Handler]:
    """Returns what the other end may call, by name."""
    return {each.__name__.lstrip("_"): each for each in functions}


class PeerGoneError(ConnectionError):
    """The other process has ended."""


class Peer:
    """One end; used in the event loop."""

    def __init__(
        self, channel: socket.socket, handlers: Mapping[str, Handler], on_gone: Callable[[], None]
    ) -> None:
        """Takes a socket, and what the other end may call; ``on_gone`` is called at its end."""
        self._channel = channel
        self._handlers = handlers
        self._on_gone = on_gone
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._received: deque[int] = deque()
        self._unsent: deque[tuple[memoryview, list[int]]] = deque()
        self._sockets: dict[int, socket.socket] = {}
        self._numbers = itertools.count()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        channel.setblocking(False)
        self._loop.add_reader(channel, self._readable)

    async def call(self, name: str, *arguments: Any, channel: socket.socket | None = None) -> Any:
        """Calls a handler of the other end, and raises its error, or PeerGoneError if it has ended.

        A socket that it is given is closed.
        """
        if self._channel.fileno() < 0:
            raise PeerGoneError(name)
        number = next(self._numbers)
        future = self._waiting[number] = self._loop.create_future()
        self._send(_Call(number, name, arguments, channel is not None), channel)
        try:
            return await future
        finally:
            self._waiting.pop(number, None)

    def close(self) -> None:
        """Closes the socket; calls that wait fail."""
        if self._channel.fileno() < 0:
            return
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        for each in self._sockets.values():
            each.close()
        for descriptor in self._received:
            socket.close(descriptor)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(PeerGoneError("the other process has ended"))

    def _readable(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._channel, _PIECE_BYTES, _MAX_SOCKETS)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        self._received.extend(descriptors)
        if not data:
            self.close()
            self._on_gone()
            return
        for body in self._frames.feed(data):
            message = pickle.loads(body)
            if isinstance(message, _Call):
                arguments = message.arguments
                if message.has_socket:
                    arguments += (socket.socket(fileno=self._received.popleft()),)
                task = asyncio.create_task(self._serve(message, arguments))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            else:
                future = self._waiting.get(message.number)
                # Its caller may have left.
                if future is None or future.done():
                    continue
                if message.error is not None:
                    future.set_exception(message.error)
                else:
                    future.set_result(message.value)

    async def _serve(self, call: _Call, arguments: tuple[Any, ...]) -> None:
        try:
            value = self._handlers[call.name](*arguments)
            if inspect.isawaitable(value):
                value = await value
        except SeqserveError as error:
            answer = _Answer(call.number, None, error)
        except Exception as error:
            # The error may come from a library, and be impossible to pickle.
            reason = f"{type(error).__name__}: {error}"
            answer = _Answer(call.number, None, SeqserveError(reason))
        else:
            answer = _Answer(call.number, value, None)
        if self._channel.fileno() >= 0:
            self._send(answer)

    def _send(self, message: _Call | _Answer, channel: socket.socket | None = None) -> None:
        descriptors = []
        if channel is not None:
            # Open until its first byte was sent.
            self._sockets[channel.fileno()] = channel
            descriptors = [channel.fileno()]
        self._unsent.append((memoryview(frame(pickle.dumps(message))), descriptors))
        if len(self._unsent) == 1:
            self._flush()

    def _flush(self) -> None:
        while self._unsent:
            data, descriptors = self._unsent[0]
            try:
                sent = socket.send_fds(self._channel, [data], descriptors)
            except BlockingIOError:
                self._loop.add_writer(self._channel, self._flush)
                return
            except OSError:
                # The other end is gone, which the reader notices.
                self._unsent.clear()
                break
            for descriptor in descriptors:
                self._sockets.pop(descriptor).close()
            if sent < len(data):
                self._unsent[0] = data[sent:], []
            else:
                self._unsent.popleft()
        self._loop.remove_writer(self._channel)
