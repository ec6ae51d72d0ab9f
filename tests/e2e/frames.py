"""HTTP/2 written by hand, so that nothing keeps it from being wrong.

Sources: RFC 9113 (HTTP/2), sections 4.1 and 6; RFC 7541 (HPACK), section 6.2.2, literals without
indexing and without Huffman's code; "gRPC over HTTP2",
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH = "/seqserve.v1.GenerationService/Generate"
MOST_IN_FRAME = 16_384
_PATIENCE_S = 5.0


class Kind(IntEnum):
    """What a frame is."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


END_STREAM, END_HEADERS = 0x1, 0x4


def frame(
    kind: int, payload: bytes = b"", *, flags: int = 0, stream: int = 0, length: int | None = None
) -> bytes:
    """Writes a frame, which may say of itself to have another length than it has."""
    size = len(payload) if length is None else length
    return struct.pack("!I", size)[1:] + struct.pack("!BBI", kind, flags, stream) + payload


HELLO = PREFACE + frame(Kind.SETTINGS)
NO_WINDOW = frame(Kind.SETTINGS, struct.pack("!HI", 4, 0))
"""Lets nothing of an answer be sent: SETTINGS_INITIAL_WINDOW_SIZE (RFC 9113, section 6.5.2)."""


def literal(name: bytes, value: bytes) -> bytes:
    """Writes a header that no table keeps."""
    return b"\0" + _text(name) + _text(value)


def indexed(name: bytes, value: bytes) -> bytes:
    """Writes a header that the table keeps."""
    return b"\x40" + _text(name) + _text(value)


def _text(data: bytes) -> bytes:
    return _integer(len(data)) + data


def _integer(number: int) -> bytes:
    """Writes an integer behind one bit (RFC 7541, section 5.1)."""
    if number < 127:
        return bytes([number])
    number, written = number - 127, bytearray([127])
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def call(**others: str) -> bytes:
    """Writes the headers of a call; what is given comes after them, ``_`` for ``-``."""
    headers = {":method": "POST", ":scheme": "http", ":path": PATH, ":authority": "localhost"}
    headers |= {"te": "trailers", "content-type": "application/grpc"}
    headers |= {name.replace("_", "-"): value for name, value in others.items()}
    return b"".join(literal(name.encode(), value.encode()) for name, value in headers.items())


def opened(stream: int, block: bytes, *, flags: int = END_HEADERS) -> bytes:
    """Opens a stream with a block of headers."""
    return frame(Kind.HEADERS, block, flags=flags, stream=stream)


def message(data: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """Writes a message as gRPC does, behind its length."""
    return struct.pack("!BI", compressed, len(data) if length is None else length) + data


def reset(stream: int, error: int = 8) -> bytes:
    """Ends a stream; 8 is a cancel."""
    return frame(Kind.RST_STREAM, struct.pack("!I", error), stream=stream)


@contextlib.contextmanager
def connected(target: str) -> Iterator[socket.socket]:
    """Connects to a server, and says nothing yet."""
    host, _, port = target.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def thrown(target: str, pieces: Iterable[bytes]) -> None:
    """Sends pieces, reading nothing, until there are no more or the server has hung up."""
    with connected(target) as connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)


def conversed(target: str, pieces: Iterable[bytes], *, patience_s: float = 0.2) -> bytes:
    """Sends pieces, and gives what comes back until nothing more does."""
    answer = bytearray()
    with connected(target) as connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
        connection.settimeout(patience_s)
        while data := connection.recv(1 << 16):
            answer += data
    return bytes(answer)
