"""A fake server for one test, and a gateway in front of it."""

from collections.abc import AsyncIterator, Iterator

import pytest
from httpx import AsyncClient
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.translating import Translator
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.app import FORMS


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[FakeServer]:
    """It translates where the module has ``PAIRS`` of languages."""
    pairs = getattr(request.module, "PAIRS", None)
    server = FakeServer() if pairs is None else Translator(*pairs)
    yield server
    server.stop()


@pytest.fixture
async def client(server: FakeServer, request: pytest.FixtureRequest) -> AsyncIterator[AsyncClient]:
    """A client of the module's ``FORM``, or of every form."""
    form = getattr(request.module, "FORM", None)
    async with opened(gateway_of(server), *([form] if form else FORMS)) as client:
        yield client
