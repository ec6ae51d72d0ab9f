"""HTTP/2 attacks that no library sends: the server serves other clients as before.

While each attack is made, a normal caller goes on calling, and each of its calls must be answered.
Afterwards nothing runs, the processor is at rest and memory has come back.
"""

import gzip
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from tests.resources import cpu_s, memory_mb
from tests.support.frames import (
    END_HEADERS,
    END_STREAM,
    HELLO,
    MOST_IN_FRAME,
    NO_WINDOW,
    PATH,
    PREFACE,
    Kind,
    call,
    connected,
    conversed,
    frame,
    indexed,
    literal,
    message,
    opened,
    reset,
    thrown,
)
from tests.support.process import MODELS, ONCE, ServerProcess, repeating, until

from seqserve import Client
from seqserve.v1 import generation_pb2

SEED = 11
CALLS = 20_000
"""Frames of a flood."""
SLOWEST_S = 5.0
"""Maximum wait of the normal client, on a machine that runs the attack too."""
KEPT_MB = 24.0
"""Memory that allocators may keep after an attack; seven attacks keep no more."""
PEAK_MB = 200.0
"""Maximum peak memory of the server's main process."""
AT_REST = 0.25
"""Maximum share of a core that an idle server uses."""
REQUEST = generation_pb2.GenerateRequest(source="Nobody waits for the old train near the garden.")
LONG = generation_pb2.GenerateRequest(
    source=REQUEST.source,
    options=generation_pb2.GenerationOptions(min_decoding_length=128, max_decoding_length=128),
)

Attack = Callable[[str], object]

pytestmark = pytest.mark.chaos


# ---- attacks


def no_preface(target: str) -> None:
    draw = random.Random(SEED)
    for start in (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        PREFACE[:-1],
        b"\x16\x03\x01\x02\x00",
        b"\0" * 99,
    ):
        for _ in range(10):
            conversed(target, [start, draw.randbytes(1 << 12)], patience_s=0.05)


def random_frames(target: str) -> None:
    draw = random.Random(SEED)
    for _ in range(150):
        frames = [
            frame(
                draw.choice([*Kind, 10, 255]),
                draw.randbytes(draw.choice((0, 1, 3, 4, 5, 8, 9, 64, 300))),
                flags=draw.choice((0, END_STREAM, END_HEADERS, 8, 32, 255)),
                stream=draw.choice((0, 0, 1, 2, 3, 5, (1 << 31) - 1, (1 << 32) - 1)),
                length=draw.choice((None, None, None, 0, 5, 99, 1 << 23)),
            )
            for _ in range(draw.randint(1, 12))
        ]
        conversed(target, [HELLO, *frames], patience_s=0.02)


def frames_of_wrong_length(target: str) -> None:
    for kind, lengths in {
        Kind.SETTINGS: (1, 5, 7),
        Kind.PING: (0, 7, 9),
        Kind.RST_STREAM: (0, 3, 5),
        Kind.WINDOW_UPDATE: (0, 3, 5),
        Kind.PRIORITY: (0, 4, 6),
        Kind.GOAWAY: (0, 7),
        Kind.HEADERS: (0,),
        Kind.CONTINUATION: (0, 9),
    }.items():
        for length in lengths:
            for stream in (0, 1):
                wrong = frame(kind, b"\0" * length, stream=stream, flags=END_HEADERS)
                conversed(target, [HELLO, opened(1, call()), wrong], patience_s=0.05)


def headers_that_cannot_be_read(target: str) -> None:
    draw = random.Random(SEED)
    blocks = [draw.randbytes(size) for size in (1, 5, 40, 400, 9000) for _ in range(20)]
    # An endless integer, an index beyond the table, a table of impossible size.
    blocks += [b"\xff" + b"\x80" * 64 + b"\1", b"\xff\xff\xff\xff\x0f", b"\x3f\xff\xff\xff\xff\x0f"]
    for block in blocks:
        conversed(
            target, [HELLO, opened(1, block, flags=END_HEADERS | END_STREAM)], patience_s=0.02
        )


def headers_that_swell(target: str) -> None:
    """Repeats a header of the table: one byte on the wire, 4,000 bytes in memory."""
    for _ in range(20):
        swelling = indexed(b"x-swells", b"a" * 3900) + b"\xbe" * 12_000
        pieces = [opened(stream, call() + swelling) for stream in (1, 3, 5)]
        conversed(target, [HELLO, *pieces], patience_s=0.1)


def giant_headers(target: str) -> None:
    block = call() + literal(b"x-giant", b"a" * (1 << 20))
    parts = [block[i : i + MOST_IN_FRAME] for i in range(0, len(block), MOST_IN_FRAME)]
    many = call() + b"".join(literal(b"x-%d" % number, b"a") for number in range(1500))
    for _ in range(20):
        rest = [frame(Kind.CONTINUATION, part, stream=1) for part in parts[1:]]
        end = frame(Kind.CONTINUATION, flags=END_HEADERS, stream=1)
        conversed(target, [HELLO, opened(1, parts[0], flags=0), *rest, end], patience_s=0.1)
        conversed(target, [HELLO, opened(1, many)], patience_s=0.1)


def headers_without_end(target: str) -> None:
    """Sends a flood of CONTINUATION frames."""
    part = literal(b"x-more", b"a" * (MOST_IN_FRAME - 40))
    for more in (part, b"", literal(b"a", b"")):
        flood = frame(Kind.CONTINUATION, more, stream=1)
        count = (48 << 20) // len(flood) if more is part else CALLS
        thrown(target, [HELLO, opened(1, call(), flags=0), *([flood] * count)])


def rapid_reset(target: str) -> None:
    """Opens calls and resets them at once (CVE-2023-44487)."""
    body = message(LONG.SerializeToString())
    for data in (b"", body):
        calls = [
            opened(stream, call())
            + (frame(Kind.DATA, data, flags=END_STREAM, stream=stream) if data else b"")
            + reset(stream)
            for stream in range(1, 2 * CALLS, 2)
        ]
        thrown(target, [HELLO, *calls])


def reset_in_progress(target: str) -> None:
    """Resets calls after they have begun and occupy slots and the queue."""
    streams = range(1, 200, 2)
    body = message(LONG.SerializeToString())
    for pause_s in (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5):
        with connected(target) as connection:
            connection.sendall(HELLO)
            for stream in streams:
                data = frame(Kind.DATA, body, flags=END_STREAM, stream=stream)
                connection.sendall(opened(stream, call()) + data)
            time.sleep(pause_s)
            for stream in streams:
                connection.sendall(reset(stream))
            # Closing a socket with unread bytes would drop bytes that the server has not read yet.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(1 << 16):
                pass


def windows_that_overflow(target: str) -> None:
    for stream in (0, 1):
        for increment in (0, (1 << 31) - 1, (1 << 32) - 1):
            wider = frame(Kind.WINDOW_UPDATE, struct.pack("!I", increment), stream=stream)
            conversed(target, [HELLO, opened(1, call()), wider, wider], patience_s=0.1)


def readers_that_take_nothing(target: str) -> None:
    body = frame(Kind.DATA, message(LONG.SerializeToString()), flags=END_STREAM, stream=1)
    for number in range(40):
        headers = call(**{":path": PATH + ("Stream" if number % 2 else "")})
        conversed(
            target, [HELLO, NO_WINDOW, opened(1, headers), body], patience_s=0.01 * (number % 20)
        )


def settings_flood(target: str) -> None:
    changed = frame(Kind.SETTINGS, struct.pack("!HI", 4, 65_535) * 9)
    thrown(target, [HELLO, *([changed] * CALLS)])


def ping_flood(target: str) -> None:
    thrown(target, [HELLO, *([frame(Kind.PING, b"12345678")] * 5 * CALLS)])


def half_a_frame_and_silence(target: str) -> None:
    halves = [b"PRI", PREFACE, HELLO + b"\0\0", HELLO + frame(Kind.HEADERS, call(), stream=1)[:30]]
    halves.append(HELLO + opened(1, call()) + frame(Kind.DATA, b"\0\0", stream=1, length=999))
    with ThreadPoolExecutor(50) as pool:

        def hold(number: int) -> None:
            with connected(target) as connection:
                connection.sendall(halves[number % len(halves)])
                time.sleep(2.0)

        list(pool.map(hold, range(100)))


@cache
def bomb() -> bytes:
    """Half a MiB of gzip that unpacks to half a GiB."""
    return gzip.compress(bytes(1 << 29), 9)


def messages_that_lie(target: str) -> None:
    request = REQUEST.SerializeToString()
    bodies = [
        message(request, length=(1 << 32) - 1),
        message(request, length=len(request) + 1),
        message(request, compressed=1),
        message(request, compressed=255),
        message(b"\x1f\x8b" + b"\xff" * 999, compressed=1),
        message(gzip.compress(request)[:-4], compressed=1),
        message(bomb(), compressed=1),
        message(bomb()[: 1 << 18], compressed=1),
        b"\0\0",
        b"",
    ]
    for encoding in ("gzip", "deflate", "identity", "snappy", "gzip,gzip"):
        for body in bodies:
            pieces = [
                frame(Kind.DATA, body[i : i + MOST_IN_FRAME], stream=1)
                for i in range(0, len(body), MOST_IN_FRAME)
            ]
            end = frame(Kind.DATA, flags=END_STREAM, stream=1)
            headers = opened(1, call(grpc_encoding=encoding))
            conversed(target, [HELLO, headers, *pieces, end], patience_s=0.1)


def calls_that_are_none(target: str) -> None:
    body = frame(Kind.DATA, message(REQUEST.SerializeToString()), flags=END_STREAM, stream=1)
    timeouts = ["", "S", "-1S", "1", "999999999S", "1x", "0n", "18446744073709551616n", "1.5S", "∞"]
    others = [{"grpc-timeout": value} for value in timeouts]
    others += [{"content-type": value} for value in ("text/html", "application/grpc+json", "")]
    others += [{":method": "GET"}, {":path": ""}, {":path": "/" * 4000}, {":scheme": "\0"}]
    others += [{"X-Upper": "a"}, {"te": "x"}, {"grpc-accept-encoding": "x," * 999}]
    others += [{"any-bin": "no base 64!"}, {"grpc-tags-bin": "AA"}, {"x-request-id": "\x7f\0\r\n"}]
    others += [{"x-request-id": "\udcff"}, {"user-agent": "\udcff"}, {"authorization": "\udcff"}]
    for other in others:
        block = call(**other)
        conversed(target, [HELLO, opened(1, block), body], patience_s=0.1)
        # Without the headers that every call needs.
        alone = b"".join(literal(name.encode(), os.fsencode(text)) for name, text in other.items())
        conversed(target, [HELLO, opened(1, alone), body], patience_s=0.02)


ATTACKS: list[Attack] = [
    no_preface,
    random_frames,
    frames_of_wrong_length,
    headers_that_cannot_be_read,
    headers_that_swell,
    giant_headers,
    headers_without_end,
    rapid_reset,
    reset_in_progress,
    windows_that_overflow,
    readers_that_take_nothing,
    settings_flood,
    ping_flood,
    half_a_frame_and_silence,
    messages_that_lie,
    calls_that_are_none,
]


# ---- the server during and after an attack


@contextmanager
def calling(target: str) -> Iterator[tuple[list[float], list[Exception]]]:
    """A normal client calls in a loop meanwhile; gives its durations, and what failed."""
    durations_s: list[float] = []
    failures: list[Exception] = []

    def call() -> None:
        began_s = time.perf_counter()
        try:
            client.generate(REQUEST.source, max_decoding_length=8)
        except Exception as error:
            failures.append(error)
        durations_s.append(time.perf_counter() - began_s)

    with Client(target, retry=ONCE) as client, repeating(call, 0.02):
        yield durations_s, failures


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("frames")
    options = ("--slots", "16", "--log-level", "warning", "--caller-share", "1")
    with ServerProcess(MODELS, folder, *options).unharmed() as server:
        yield server


def peak_mb(server: ServerProcess) -> float:
    """Returns the peak memory of the server's main process: VmHWM of proc_pid_status(5)."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def is_at_rest(server: ServerProcess) -> bool:
    before_s = cpu_s(server.pid)
    time.sleep(1.0)
    return server.is_idle() and cpu_s(server.pid) - before_s < AT_REST


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_malformed_http2_harms_no_other_client(server: ServerProcess, attack: Attack) -> None:
    # The first time may leave something behind, such as a pool of buffers.
    attack(server.target)
    until(lambda: is_at_rest(server))
    before_mb = memory_mb(server)
    with calling(server.target) as (durations_s, failures):
        began_s = time.perf_counter()
        attack(server.target)
        took_s = time.perf_counter() - began_s
    until(lambda: is_at_rest(server))
    until(lambda: memory_mb(server) - before_mb < KEPT_MB)
    print(
        f"\n{attack.__name__}: {took_s:.1f} s; {len(durations_s)} calls meanwhile, the"
        f" slowest {max(durations_s):.2f} s; {before_mb:.1f} MB before,"
        f" {memory_mb(server):.1f} MB after, {peak_mb(server):.1f} MB at most"
    )
    assert failures == []
    assert max(durations_s) < SLOWEST_S
    assert peak_mb(server) < PEAK_MB
