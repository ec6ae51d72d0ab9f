"""Either client, with a blocking interface."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from seqserve import AsyncClient, Client, RetryPolicy

from .fake_transport import AsyncFakeTransport, FakeCall, FakeTransport

ONCE = RetryPolicy(max_attempts=1)
SOON = RetryPolicy(initial_backoff_s=0.01)


class Session:
    """Calls a client: waits for what it returns, and lists what it yields."""

    def __init__(self, client: Any, transport: Any = None) -> None:
        self._client, self._transport = client, transport
        self._runner = asyncio.Runner()

    @property
    def calls(self) -> list[FakeCall]:
        calls: list[FakeCall] = self._transport.calls
        return calls

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        return lambda *texts, **options: self._wait(getattr(self._client, verb)(*texts, **options))

    def end(self) -> None:
        self._wait(self._client.close())
        self._runner.close()

    def _wait(self, value: Any) -> Any:
        if hasattr(value, "__aiter__"):
            return self._runner.run(listed(value))
        if isinstance(value, Awaitable):
            return self._runner.run(_awaited(value))
        return list(value) if isinstance(value, Iterator) else value


Connect = Callable[..., Session]


async def _awaited(value: Any) -> Any:
    return await value


async def listed(items: Any) -> list[Any]:
    return [item async for item in items]


@pytest.fixture(params=["Client", "AsyncClient"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes sessions of a client with a target, or with the outcomes of calls."""
    sessions: list[Session] = []

    def make(*where: Any, **settings: Any) -> Session:
        is_blocking = request.param == "Client"
        client = Client if is_blocking else AsyncClient
        if where and isinstance(where[0], str):
            sessions.append(Session(client(*where, **settings)))
        else:
            outcomes = list(where)
            transport: Any = (
                FakeTransport(outcomes) if is_blocking else AsyncFakeTransport(outcomes)
            )
            sessions.append(Session(client(transport=transport, **settings), transport))
        return sessions[-1]

    yield make
    for session in sessions:
        session.end()
