"""A response whose body is generated while it is sent."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from seqserve.errors import CallError


class Streamed(Response):
    """Sends each part as it comes, and closes the generator however the response ends.

    There is at least one part. A generator that has told the reader of a failed call may raise its
    error after that: the response is complete then, and the error is counted.
    """

    def __init__(self, parts: AsyncGenerator[str, None], media_type: str) -> None:
        """Stores the generator; ``media_type`` says what its parts, joined, are."""
        self.media_type = media_type
        super().__init__()
        del self.headers["content-length"]
        # A proxy such as nginx would keep parts back otherwise.
        self.headers["x-accel-buffering"] = "no"
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response; an error of the first part comes before its headers."""
        async with aclosing(self._parts):
            first = (await anext(self._parts)).encode()
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            failure: CallError | None = None
            try:
                async for part in self._parts:
                    body = part.encode()
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            except CallError as error:
                failure = error
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            if failure is not None:
                raise failure
