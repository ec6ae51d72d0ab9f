"""An engine that answers at once and keeps the requests it gets."""

import asyncio

import pytest
from tests.unit.server.front.service import Service

from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.engine import Receive


@pytest.fixture
def submitted(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[GenerateSpec]:
    """Stands for the engine: records each request and answers it with one hypothesis."""
    requests: list[GenerateSpec] = []

    def submit(spec: GenerateSpec, receive: Receive) -> int:
        requests.append(spec)
        answer = Finished([Hypothesis([5], -1.0, StopReason.EOS)])
        asyncio.get_running_loop().call_soon(receive, answer, Timeline())
        return len(requests)

    monkeypatch.setattr(service.remote, "submit", submit)
    return requests
