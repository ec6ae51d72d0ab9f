"""A running service for one test."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.unit.server.front.service import Service, serving

from seqserve_server.contract.request import Spec
from seqserve_server.front.engine_client.engine import Receive


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
def specs(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    """Requests that the engine of the service is sent, as they come."""
    sent: list[Spec] = []
    submit = service.remote.submit

    def note(spec: Spec, receive: Receive) -> int:
        sent.append(spec)
        return submit(spec, receive)

    monkeypatch.setattr(service.remote, "submit", note)
    return sent
