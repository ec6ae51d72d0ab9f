"""HTTP/2 written by hand, so that it can be malformed.

Sources: RFC 9113 (HTTP/2), sections 4.1 and 6; RFC 7541 (HPACK), section 6.2.2, literals without
indexing and without Huffman's code; "gRPC over HTTP2",
https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
PATH = "/seqserve.v1.GenerationService/Generate"
MOST_IN_FRAME = 16_384
_PATIENCE_S = 60.0
# Limits are for each address, and the normal clients of a test have another one.
_ADDRESS = "127.0.0.2"


class Kind(IntEnum):
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
    """Encodes a frame, whose length field may be wrong."""
    size = len(payload) if length is None else length
    return struct.pack("!I", size)[1:] + struct.pack("!BBI", kind, flags, stream) + payload


HELLO = PREFACE + frame(Kind.SETTINGS)
NO_WINDOW = frame(Kind.SETTINGS, struct.pack("!HI", 4, 0))
"""Keeps the server from sending: SETTINGS_INITIAL_WINDOW_SIZE 0 (RFC 9113, section 6.5.2)."""


def literal(name: bytes, value: bytes) -> bytes:
    """Encodes a header that is not added to the table."""
    return b"\0" + _text(name) + _text(value)


def indexed(name: bytes, value: bytes) -> bytes:
    """Encodes a header that is added to the table."""
    return b"\x40" + _text(name) + _text(value)


def _text(data: bytes) -> bytes:
    return _integer(len(data)) + data


def _integer(number: int) -> bytes:
    """Encodes an integer with a prefix of 7 bits (RFC 7541, section 5.1)."""
    if number < 127:
        return bytes([number])
    number, written = number - 127, bytearray([127])
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    return bytes([*written, number])


def call(**others: str) -> bytes:
    """Encodes the headers of a call, and others, whose names have ``_`` for ``-``.

    Bytes that are not UTF-8 are surrogates, as those of names of files.
    """
    headers = {":method": "POST", ":scheme": "http", ":path": PATH, ":authority": "localhost"}
    headers |= {"te": "trailers", "content-type": "application/grpc"}
    headers |= {name.replace("_", "-"): value for name, value in others.items()}
    return b"".join(literal(name.encode(), os.fsencode(value)) for name, value in headers.items())


def opened(stream: int, block: bytes, *, flags: int = END_HEADERS) -> bytes:
    """Encodes HEADERS that open a stream."""
    return frame(Kind.HEADERS, block, flags=flags, stream=stream)


def message(data: bytes, *, compressed: int = 0, length: int | None = None) -> bytes:
    """Encodes a message as gRPC does, after its length."""
    return struct.pack("!BI", compressed, len(data) if length is None else length) + data


def reset(stream: int, error: int = 8) -> bytes:
    """Encodes RST_STREAM; code 8 is a cancel."""
    return frame(Kind.RST_STREAM, struct.pack("!I", error), stream=stream)


@contextlib.contextmanager
def connected(target: str) -> Iterator[socket.socket]:
    """Connects to a server, from an address that no other client has, without sending anything."""
    host, _, port = target.rpartition(":")
    server = host, int(port)
    with socket.create_connection(server, _PATIENCE_S, source_address=(_ADDRESS, 0)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection


def thrown(target: str, pieces: Iterable[bytes]) -> None:
    """Sends pieces without reading, until none is left or the server closes the connection."""
    with connected(target) as connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)


def conversed(
    target: str, pieces: Iterable[bytes], *, patience_s: float = _PATIENCE_S, last: bytes = b""
) -> bytes:
    """Sends pieces and returns what the server sends back, up to ``last`` or its end."""
    answer = bytearray()
    with connected(target) as connection, contextlib.suppress(OSError):
        for piece in pieces:
            connection.sendall(piece)
        connection.settimeout(patience_s)
        while not (last and last in answer) and (data := connection.recv(1 << 16)):
            answer += data
    return bytes(answer)
