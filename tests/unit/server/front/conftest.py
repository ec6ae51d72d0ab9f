"""A running service for one test."""

from collections.abc import AsyncIterator

import pytest_asyncio
from tests.unit.server.front.service import Service, serving


@pytest_asyncio.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service
