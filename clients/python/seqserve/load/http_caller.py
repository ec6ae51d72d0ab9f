"""A caller over HTTP: as many connections as calls in flight, no retries.

A connection costs little: one request at a time, JSON, server-sent events.
Sources: RFC 9112, sections 3 to 7, without trailers; the HTML standard, server-sent events.
"""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from seqserve.address import is_local
from seqserve.auth import metadata_of
from seqserve.errors import OptionError
from seqserve.load import Reply
from seqserve.tls import TLS

_HEAD_END = b"\r\n\r\n"


class HttpFailure(RuntimeError):
    """The status is not 200."""

    def __init__(self, path: str, status: str, body: bytes) -> None:
        self.status, _, reason = status.partition(" ")
        self.body = body.decode(errors="replace")
        super().__init__(f"{path}: {self.status} {reason}: {self.body}")


class HttpConnection:
    """A connection that stays open."""

    def __init__(
        self,
        address: str,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        server_name: str | None = None,
    ) -> None:
        self._address = address
        self._tls = tls
        self._server_name = server_name
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())

    async def __aenter__(self) -> Self:
        host, _, port = self._address.rpartition(":")
        name = self._server_name if self._tls else None
        self._reader, self._writer = await asyncio.open_connection(
            host.strip("[]"), int(port), ssl=self._tls, server_hostname=name
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed it, as far as is known."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def post(self, path: str, facts: Mapping[str, Any]) -> Any:
        """Sends JSON and returns the JSON of the answer."""
        headers = await self._begin(path, facts)
        body = b"".join([part async for part in self._body(headers)])
        try:
            return json.loads(body)
        except ValueError:
            raise HttpFailure(path, "200 and no JSON", body) from None

    async def events(self, path: str, facts: Mapping[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        """Sends JSON and yields the name and the JSON of each event, as it comes."""
        rest = b""
        async for part in self._body(await self._begin(path, facts)):
            *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                lines = [line.partition(b":") for line in event.split(b"\n")]
                fields = {name: value.removeprefix(b" ") for name, _, value in lines}
                if data := fields.get(b"data"):
                    yield fields.get(b"event", b"message").decode(), json.loads(data)

    async def _begin(self, path: str, facts: Mapping[str, Any]) -> dict[str, str]:
        body = json.dumps(facts).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address}\r\n{self._headers}"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = (await self._reader.readuntil(_HEAD_END)).decode("latin-1")
        first, *lines = answer.splitlines()
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/1.") or not status[:3].isdigit():
            raise ConnectionError("it does not speak HTTP")
        if not status.startswith("200"):
            text = b"".join([part async for part in self._body(headers)])
            raise HttpFailure(path, status, text)
        return headers

    async def _body(self, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            while size := int((await self._reader.readline()).partition(b";")[0] or b"0", 16):
                yield (await self._reader.readexactly(size + 2))[:-2]
            await self._reader.readline()
        elif "content-length" in headers:
            yield await self._reader.readexactly(int(headers["content-length"]))
        else:
            yield await self._reader.read()
        if headers.get("connection", "").lower() == "close":
            self._writer.close()


# Where the forms have it, of an error as JSON: our gateway and DeepL, LibreTranslate, OpenAI.
_DETAILS = ("detail", "error", "message")


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpForm:
    """A request as JSON."""

    path: str
    text_field: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """All others."""
    is_streamed: bool = False
    """Whether the answer is server-sent events: pieces, then a ``result``."""


class HttpCaller:
    """Calls one server; a connection without a call waits for the next one."""

    def __init__(
        self, address: str, form: HttpForm, *, tls: TLS | None = None, token: str | None = None
    ) -> None:
        self._address, self._form, self._tls = address, form, tls
        private = tls is not None or is_local(address)
        self._headers = dict(metadata_of(token, is_private=private))

    async def __aenter__(self) -> Self:
        """Reads the files of TLS; each call connects if it needs to."""
        self._context = _context(self._tls)
        self._idle: list[HttpConnection] = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._idle:
            await connection.__aexit__()

    async def send(self, source: str, timeout_s: float) -> Reply:
        """Sends a text once and waits for the end of its answer, which may be an error."""
        connection: HttpConnection | None = None
        is_kept = False
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connection()
                facts = {**self._form.fields, self._form.text_field: source}
                send = _stream if self._form.is_streamed else _post
                reply = await send(connection, self._form.path, facts)
                is_kept = True
                return reply
        except TimeoutError:
            return Reply(error="DEADLINE_EXCEEDED", details=f"no answer within {timeout_s:g} s")
        except HttpFailure as failure:
            is_kept = True
            return Reply(error=f"HTTP {failure.status}", details=_details(failure.body))
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            is_closed = isinstance(error, EOFError)
            reason = "it closed the connection; is that HTTP?" if is_closed else error
            return Reply(error="UNAVAILABLE", details=f"no answer from {self._address}: {reason}")
        finally:
            if connection is not None:
                if is_kept and connection.is_open:
                    self._idle.append(connection)
                else:
                    await connection.__aexit__()

    async def _connection(self) -> HttpConnection:
        while self._idle:
            # The one used last, so that a server closes those that are too many.
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            await connection.__aexit__()
        name = self._tls.server_name if self._tls else None
        connection = HttpConnection(self._address, self._context, self._headers, name)
        return await connection.__aenter__()


async def _post(connection: HttpConnection, path: str, facts: Mapping[str, Any]) -> Reply:
    return _reply(await connection.post(path, facts), [])


async def _stream(connection: HttpConnection, path: str, facts: Mapping[str, Any]) -> Reply:
    at_s: list[float] = []
    reply = Reply(error="INTERNAL", details="the stream ended without a result")
    async for name, data in connection.events(path, facts):
        if name == "error":
            reply = Reply(error=data.get("code", "INTERNAL"), details=data.get("detail", ""))
        elif "result" in data:
            reply = _reply(data["result"], at_s)
        else:
            at_s.append(time.perf_counter())
    return reply


def _reply(answer: Any, at_s: list[float]) -> Reply:
    facts = answer if isinstance(answer, dict) else {}
    counts = (int(facts.get(name, 0)) for name in ("generated_tokens", "source_tokens"))
    return Reply.at(at_s, *counts)


def _details(body: str) -> str:
    with suppress(ValueError):
        facts = json.loads(body)
        if isinstance(facts, dict):
            return next((str(facts[name]) for name in _DETAILS if name in facts), body)
    return body


def _context(tls: TLS | None) -> ssl.SSLContext | None:
    if tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        raise OptionError(f"tls: a file cannot be used: {error}") from None
    return context
