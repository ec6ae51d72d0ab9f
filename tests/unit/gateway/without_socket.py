"""A gateway in front of a fake server, called without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
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


JSON_HEADERS = ((b"host", b"localhost"), (b"content-type", b"application/json"))


class Reader:
    """A client of an application that leaves when it has the answer, or enough of it."""

    def __init__(
        self,
        path: str,
        facts: dict[str, Any] | bytes,
        leaves_at: bytes | None = None,
        headers: Iterable[tuple[bytes, bytes]] = JSON_HEADERS,
    ) -> None:
        self.status, self.headers, self.sent = 0, [*headers], b""
        self.answer_headers: list[tuple[bytes, bytes]] = []
        self.gone = asyncio.Event()
        self._path, self._leaves_at = path, leaves_at
        self._body = facts if isinstance(facts, bytes) else json.dumps(facts).encode()
        self._is_read = False

    async def visit(self, app: Callable[..., Any]) -> None:
        """Sends the request; returns when the application has ended."""
        scope = {"type": "http", "method": "POST", "path": self._path, "query_string": b""}
        scope |= {"headers": self.headers, "client": ("127.0.0.1", 1)}
        await app(scope, self._receive, self._send)

    async def _receive(self) -> dict[str, Any]:
        if not self._is_read:
            self._is_read = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.status = message.get("status", self.status)
        self.answer_headers += message.get("headers", [])
        self.sent += message.get("body", b"")
        is_enough = self._leaves_at is not None and self._leaves_at in self.sent
        is_whole = message["type"] == "http.response.body" and not message.get("more_body")
        if is_enough or is_whole:
            self.gone.set()


def texts_of(server: FakeServer) -> Sequence[str]:
    """Returns the sources that have reached a fake server."""
    return [request.source for request in server.requests]
