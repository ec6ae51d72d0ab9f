"""A running service for one test."""

from collections.abc import AsyncIterator

import pytest
from tests.unit.server.front.service import Service, noted_specs, serving

from seqserve_server.contract.request import Spec


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
def specs(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Spec]:
    return noted_specs(service, monkeypatch)
