"""A gateway in front of a fake server, called without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
from starlette.applications import Starlette
from tests.unit.client.fake_server import FakeServer

from seqserve.retry import RetryPolicy
from seqserve_gateway.admission import Admission, Bodies
from seqserve_gateway.app import app_of
from seqserve_gateway.endpoint import Form, Gateway
from seqserve_gateway.upstream import Upstream


def gateway_of(server: FakeServer, **settings: Any) -> Gateway:
    """Makes a gateway whose calls are tried once; ``settings`` replace those of the upstream."""
    once = RetryPolicy(max_attempts=1)
    upstream = Upstream(**({"target": server.target, "retry": once} | settings))
    return Gateway(upstream=upstream, admission=Admission(64, rate=float("inf")), bodies=Bodies())


def opened(
    gateway: Gateway, *forms: Form, **options: Any
) -> AbstractAsyncContextManager[httpx.AsyncClient]:
    """Runs the application of some forms; yields a client of it."""
    return client_of(app_of(gateway, forms, **options))


@asynccontextmanager
async def client_of(app: Starlette, address: str = "127.0.0.1") -> AsyncIterator[httpx.AsyncClient]:
    """Runs an application; yields a client of it, with an address."""
    transport = httpx.ASGITransport(app, client=(address, 1))
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost:5000") as client,
    ):
        yield client


class Reader:
    """A client of an application that leaves when it has seen enough of the answer."""

    def __init__(self, path: str, facts: dict[str, Any], leaves_at: bytes | None = None) -> None:
        self.sent = b""
        self.status = 0
        self._path, self._body = path, json.dumps(facts).encode()
        self._leaves_at = leaves_at
        self._is_read = False
        self.gone = asyncio.Event()

    async def visit(self, app: Callable[..., Any]) -> None:
        """Sends the request; returns when the application has ended."""
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": self._path,
            "query_string": b"",
            "headers": headers,
        }
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.sent += message.get("body", b"")
        if self._leaves_at is not None and self._leaves_at in self.sent:
            self.gone.set()


def texts_of(server: FakeServer) -> Sequence[str]:
    """Returns the sources that have reached a fake server."""
    return [request.source for request in server.requests]
