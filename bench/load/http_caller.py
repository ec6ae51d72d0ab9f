"""A caller of HTTP that costs little: one connection, one request at a time, answers as JSON.

Source: RFC 9112, sections 3 to 6; only bodies whose length is declared.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Self


class HttpCaller:
    """A connection that stays open."""

    def __init__(self, address: str) -> None:
        """Takes host and port; connects when it is entered."""
        self._address = address

    async def __aenter__(self) -> Self:
        """Connects."""
        host, _, port = self._address.rpartition(":")
        self._reader, self._writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Closes the connection."""
        self._writer.close()

    async def post(self, path: str, facts: dict[str, Any]) -> Any:
        """Sends JSON and returns that of the answer.

        Raises:
            RuntimeError: The status is not 200.
        """
        body = json.dumps(facts).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._address}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        answer = await self._reader.readexactly(int(headers["content-length"]))
        if status.split()[1] != "200":
            raise RuntimeError(f"{path}: {status}: {answer.decode()}")
        return json.loads(answer)
