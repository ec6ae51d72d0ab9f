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
        self._sending = threading.Lock()
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
        self.send(bytes(body))
        return stream

    def send(self, frames: bytes) -> None:
        with self._sending:
            self._connection.sendall(frames)

    def cancel(self, stream: int) -> None:
        self.send(reset(stream))

    def drain(self) -> None:
        """Reads what needs no window, and acknowledges it, or the server closes the connection.

        Source: RFC 9113, sections 6.5.3 (SETTINGS) and 6.7 (PING).
        """
        data = bytearray()
        with contextlib.suppress(OSError):
            while more := self._connection.recv(1 << 16):
                data += more
                while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3])):
                    kind, flags, content = data[3], data[4], bytes(data[9:end])
                    del data[:end]
                    if kind in (Kind.PING, Kind.SETTINGS) and not flags:
                        self.send(frame(kind, content if kind == Kind.PING else b"", flags=1))


@contextlib.contextmanager
def unread(target: str, caller: str) -> Iterator[Unread]:
    """Connects a caller that reads none of its answers."""
    with connected(target) as connection:
        # The server may be silent for long.
        connection.settimeout(None)
        calls = Unread(connection, caller)
        calls.send(HELLO + NO_WINDOW)
        drained = threading.Thread(target=calls.drain, daemon=True)
        drained.start()
        yield calls
        connection.shutdown(socket.SHUT_RDWR)
        drained.join()
