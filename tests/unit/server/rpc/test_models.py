"""ListModels and GetModel."""

from __future__ import annotations

import grpc
import pytest

from seqserve.v1 import model_pb2

from .echo import MAX_SOURCE, MAX_TARGET
from .service import Service, failure


async def test_every_version_is_listed(service: Service) -> None:
    answer = await service.models.ListModels(model_pb2.ListModelsRequest())
    found = [(model.name, model.version, model.state, model.is_default) for model in answer.models]
    ready, failed = model_pb2.MODEL_STATE_READY, model_pb2.MODEL_STATE_FAILED
    assert found == [
        ("echo", 1, failed, False),
        ("echo", 2, ready, True),
        ("ruin", 1, failed, False),
    ]
    assert answer.models[0].state_reason == "weights.bin: damaged"


async def test_description(service: Service) -> None:
    answer = await service.models.GetModel(model_pb2.GetModelRequest())
    assert answer.model == model_pb2.Model(
        name="echo",
        version=2,
        state=model_pb2.MODEL_STATE_READY,
        is_default=True,
        precision="fp32",
        provider="cpu",
        max_source_length=MAX_SOURCE,
        max_target_length=MAX_TARGET,
        vocabulary_size=260,
        description="answers with the source",
        licence="Apache-2.0",
    )


async def test_broken_version_can_be_looked_at(service: Service) -> None:
    request = model_pb2.GetModelRequest(model="ruin")
    answer = await service.models.GetModel(request)
    assert answer.model.state == model_pb2.MODEL_STATE_FAILED
    assert answer.model.state_reason == "manifest.json: damaged"


@pytest.mark.parametrize(("name", "version"), [("nobody", 0), ("echo", 3), ("", 7)])
async def test_unknown(service: Service, name: str, version: int) -> None:
    request = model_pb2.GetModelRequest(model=name, version=version)
    error = await failure(service.models.GetModel(request))
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "echo/1, echo/2, ruin/1" in (error.details() or "")
