"""A connection of HTTP that costs little: one request at a time, JSON, server-sent events.

Sources: RFC 9112, sections 3 to 7, without trailers; the HTML standard, server-sent events.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

_HEAD_END = b"\r\n\r\n"


class HttpFailure(RuntimeError):
    """The status is not 200."""

    def __init__(self, path: str, status: str, body: bytes) -> None:
        """Keeps the status line, without the version, and the body."""
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
        """Takes what connects when it is entered.

        Args:
            address: Host and port.
            tls: Encrypts, if not None.
            headers: Of each request, beside those of its body.
            server_name: In the server's certificate; the host if None.
        """
        self._address = address
        self._tls = tls
        self._server_name = server_name
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())

    async def __aenter__(self) -> Self:
        """Connects."""
        host, _, port = self._address.rpartition(":")
        name = self._server_name if self._tls else None
        self._reader, self._writer = await asyncio.open_connection(
            host.strip("[]"), int(port), ssl=self._tls, server_hostname=name
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connection."""
        self._writer.close()

    @property
    def is_open(self) -> bool:
        """Whether the server has not closed it, as far as is known."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    async def post(self, path: str, facts: Mapping[str, Any]) -> Any:
        """Sends JSON and returns the JSON of the answer.

        Raises:
            HttpFailure: The status is not 200.
        """
        headers = await self._begin(path, facts)
        body = b"".join([part async for part in self._body(headers)])
        try:
            return json.loads(body)
        except ValueError:
            raise HttpFailure(path, "200 and no JSON", body) from None

    async def events(self, path: str, facts: Mapping[str, Any]) -> AsyncIterator[tuple[str, Any]]:
        """Sends JSON and yields the name and the JSON of each event, as it comes.

        Raises:
            HttpFailure: The status is not 200.
        """
        rest = b""
        async for part in self._body(await self._begin(path, facts)):
            *events, rest = (rest + part).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                lines = [line.partition(b":") for line in event.split(b"\n")]
                fields = {name: value.removeprefix(b" ") for name, _, value in lines}
                if data := fields.get(b"data"):
                    yield fields.get(b"event", b"message").decode(), json.loads(data)

    async def _begin(self, path: str, facts: Mapping[str, Any]) -> dict[str, str]:
        """Sends a request and returns the headers of its answer."""
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
        """Yields the parts of a body: in chunks, by its length, or to the end of the connection."""
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
