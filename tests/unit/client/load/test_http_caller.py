import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from tests.certificates import Certificates

from seqserve.errors import OptionError
from seqserve.load import Reply
from seqserve.load.http_caller import HttpCaller, HttpConnection, HttpFailure, HttpForm
from seqserve.tls import TLS

FORM = HttpForm(path="/translate", text_field="q", fields={"target": "de"})
STREAM = HttpForm(path="/v1/generate:stream", text_field="source", is_streamed=True)


def sized(status: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(*parts: bytes) -> bytes:
    chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(part), part) for part in parts)
    return b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"


class Server:
    """Answers each request with what a function makes of its body; empty answers hang."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.answer = answer
        self.talks: list[asyncio.Task[None] | None] = []
        self.heads: list[bytes] = []

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talks.append(asyncio.current_task())
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                [length] = [
                    line[16:] for line in head.split(b"\r\n") if line.startswith(b"Content-L")
                ]
                answer = self.answer(await reader.readexactly(int(length)))
                writer.write(answer)
                if b"Content-Length" not in answer and b"chunked" not in answer and answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(
    answer: Callable[[bytes], bytes], context: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, Server]]:
    double = Server(answer)
    server = await asyncio.start_server(double.talk, "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", double
        # The caller has closed its connections.
        await asyncio.gather(*filter(None, double.talks))


async def reply_of(answer: bytes, form: HttpForm = FORM, timeout_s: float = 60.0) -> Reply:
    async with serving(lambda _: answer) as (address, _), HttpCaller(address, form) as caller:
        return await caller.send("a", timeout_s)


async def test_a_connection_stays_open_and_shows_why_it_was_refused() -> None:
    statuses = iter(["200 OK", "200 OK", "429 Too Many Requests"])
    async with (
        serving(lambda body: sized(next(statuses), body)) as (address, double),
        HttpConnection(address) as connection,
    ):
        for facts in ({"q": "ü"}, {"q": ["last"]}):
            assert await connection.post("/translate", facts) == facts
        with pytest.raises(HttpFailure, match=r"429 Too Many Requests: .*last"):
            await connection.post("/translate", {"q": "last"})
    assert len(double.talks) == 1


@pytest.mark.parametrize(
    "answer",
    [
        sized("200 OK", b'{"generated_tokens": 3, "source_tokens": 4}'),
        chunked(b'{"generated_tokens"', b': 3, "source_tokens": 4}'),
        b'HTTP/1.0 200 OK\r\n\r\n{"generated_tokens": 3, "source_tokens": 4}',
    ],
    ids=["length", "chunks", "end"],
)
async def test_bodies_of_each_kind(answer: bytes) -> None:
    reply = await reply_of(answer)
    assert (reply.error, reply.tokens, reply.source_tokens) == ("", 3, 4)
    assert not math.isinf(reply.first_at_s)


async def test_calls_at_once_have_connections_which_later_ones_use() -> None:
    def answer(body: bytes) -> bytes:
        assert b'"target": "de"' in body
        return sized("200 OK", b"{}")

    async with serving(answer) as (address, double), HttpCaller(address, FORM) as caller:
        for _ in range(3):
            replies = await asyncio.gather(*(caller.send("a", 60.0) for _ in range(4)))
            assert not any(reply.error for reply in replies)
    assert len(double.talks) == 4


BUSY = "429 Too Many Requests"


@pytest.mark.parametrize(
    ("answer", "error", "details"),
    [
        (sized(BUSY, b'{"error": "slow down"}'), "HTTP 429", "slow down"),
        (sized(BUSY, b'{"title": "x", "detail": "it is full"}'), "HTTP 429", "it is full"),
        (sized(BUSY, b"<html>busy"), "HTTP 429", "<html>busy"),
        (sized(BUSY, b"[1]"), "HTTP 429", "[1]"),
        (sized("200 OK", b"no json"), "HTTP 200", ""),
        (b"\x00\x00\x04\x08 no HTTP\r\n\r\n", "UNAVAILABLE", ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "UNAVAILABLE", ""),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "UNAVAILABLE", ""),
        (b"half an answer", "UNAVAILABLE", ""),
    ],
)
async def test_errors_and_answers_that_are_none(answer: bytes, error: str, details: str) -> None:
    reply = await reply_of(answer)
    assert reply.error == error and reply.details == (details or reply.details) != ""


async def test_a_caller_gives_up() -> None:
    assert (await reply_of(b"", timeout_s=0.02)).error == "DEADLINE_EXCEEDED"


async def test_a_stream() -> None:
    events = (
        b'data: {"piece": {"text": "Es"}}\n\nda',
        b'ta: {"piece": {"text": " regnet"}}\r\n\r\ndata: {"result"',
        b': {"generated_tokens": 5, "source_tokens": 2}}\n\n',
    )
    reply = await reply_of(chunked(*events), STREAM)
    assert (reply.error, reply.tokens, reply.source_tokens) == ("", 5, 2)
    assert len(reply.gaps_s) == 1


@pytest.mark.parametrize(
    ("events", "error"),
    [
        (b'event: error\ndata: {"code": "UNAVAILABLE", "detail": "draining"}\n\n', "UNAVAILABLE"),
        (b'data: {"piece": {}}\n\n', "INTERNAL"),
    ],
)
async def test_a_stream_that_fails(events: bytes, error: str) -> None:
    assert (await reply_of(chunked(events), STREAM)).error == error


async def test_the_token_is_sent_and_never_in_clear() -> None:
    async with serving(lambda _: sized("200 OK", b"{}")) as (address, double):
        async with HttpCaller(address, FORM, token="secret") as caller:
            await caller.send("a", 60.0)
        assert b"authorization: Bearer secret\r\n" in double.heads[0]
    with pytest.raises(OptionError, match="in clear"):
        HttpCaller("example.com:80", FORM, token="secret")


@pytest.mark.parametrize(
    ("name", "error"), [(None, ""), ("localhost", ""), ("example.com", "UNAVAILABLE")]
)
async def test_calls_are_encrypted_and_the_server_is_checked(
    certificates: Certificates, name: str | None, error: str
) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificates.server)
    tls = TLS(ca=certificates.ca, server_name=name)
    async with (
        serving(lambda _: sized("200 OK", b"{}"), context) as (address, double),
        HttpCaller(address.replace("127.0.0.1", "localhost"), FORM, tls=tls, token="t") as caller,
    ):
        reply = await caller.send("a", math.inf)
    assert (reply.error, len(double.heads)) == (error, not error)
    assert ("certificate verify failed" in reply.details) is bool(error)
    with pytest.raises(OptionError, match="tls: a file cannot be used"):
        await HttpCaller("localhost:1", FORM, tls=TLS(ca="/missing.pem")).__aenter__()
