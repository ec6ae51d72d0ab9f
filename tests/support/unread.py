"""A caller that does not read its answers, so that the server has to hold them."""

import contextlib
import itertools
import socket
import threading
from collections.abc import Iterator

from google.protobuf.message import Message

from .frames import (
    END_STREAM,
    HELLO,
    MOST_IN_FRAME,
    NO_WINDOW,
    Kind,
    call,
    connected,
    frame,
    message,
    opened,
    reset,
)


class Unread:
    """Calls of one connection, whose answers have no window."""

    def __init__(self, connection: socket.socket, caller: str) -> None:
        self._connection, self._caller = connection, caller
        self._streams = itertools.count(1, 2)

    def call(self, method: str, request: Message) -> int:
        """Makes a call of the generation service and gives its stream."""
        stream = next(self._streams)
        path = f"/seqserve.v1.GenerationService/{method}"
        headers = call(**{":path": path, "x_caller": self._caller})
        data = message(request.SerializeToString())
        body = bytearray(opened(stream, headers))
        for begin in range(0, len(data), MOST_IN_FRAME):
            body += frame(Kind.DATA, data[begin : begin + MOST_IN_FRAME], stream=stream)
        body += frame(Kind.DATA, flags=END_STREAM, stream=stream)
        self._connection.sendall(body)
        return stream

    def cancel(self, stream: int) -> None:
        self._connection.sendall(reset(stream))


@contextlib.contextmanager
def unread(target: str, caller: str) -> Iterator[Unread]:
    """Connects a caller that reads none of its answers."""
    with connected(target) as connection:
        drained = threading.Thread(target=_drain, args=(connection,), daemon=True)
        drained.start()
        connection.sendall(HELLO + NO_WINDOW)
        yield Unread(connection, caller)
        connection.shutdown(socket.SHUT_RDWR)
        drained.join()


def _drain(connection: socket.socket) -> None:
    # What needs no window has to be read, or else the server could not send it.
    with contextlib.suppress(OSError):
        while connection.recv(1 << 16):
            pass
