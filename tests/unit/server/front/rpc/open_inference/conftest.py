"""An engine that answers at once and keeps the requests it gets."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.server.front.rpc.service import Service

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.request import Request


@pytest.fixture
def submitted(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Stands for the engine: records each request and answers it with one hypothesis."""
    requests: list[Request] = []

    def submit(request: Request) -> None:
        requests.append(request)
        answer = Finished([Hypothesis([5], -1.0, StopReason.EOS)])
        asyncio.get_running_loop().call_soon(request.receive, answer)

    monkeypatch.setattr(service.remote, "submit", submit)
    return requests
