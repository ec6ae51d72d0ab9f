"""A fake server for one test, and the form of the test's module in front of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from httpx import AsyncClient
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import gateway_of, opened


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.stop()


@pytest.fixture
async def client(server: FakeServer, request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    """A client of the module's ``FORM``."""
    async with opened(gateway_of(server), request.module.FORM) as client:
        yield client
