"""A call keeps the version that it was given until it ends."""

from __future__ import annotations

from typing import cast

import pytest
from tests.unit.server.front.rpc.echo import byte_tokenizer, manifest

from seqserve_server.contract.errors import Draining, ModelUnavailable
from seqserve_server.contract.provider import Provider
from seqserve_server.front.engine_client.client import RemoteEngine
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.repository import Entry, Repository, ServedModel
from seqserve_server.front.rpc.calls.resolution import model_of_call
from seqserve_server.front.telemetry.call_record import CallRecord, current


def entry(version: int) -> Entry:
    model = ServedModel(
        manifest=manifest(version=version),
        tokenizer=byte_tokenizer(),
        engine=cast(RemoteEngine, None),
        provider=Provider.CPU,
    )
    return Entry(name="echo", version=version, state=ModelState.READY, model=model)


async def test_call_that_asks_again_gets_what_it_has() -> None:
    older, newer = entry(1), entry(2)
    repository = Repository([older])
    repository.choose_default()
    record = CallRecord(path="/s/m", request_id="1")
    current.set(record)
    model = model_of_call(repository, "", 0)
    assert model is older.model and record.model == "echo"
    repository.add(newer)
    older.start_draining()
    for name, version in (("", 0), ("echo", 0), ("echo", 1)):
        assert model_of_call(repository, name, version) is model
    assert model_of_call(repository, "echo", 2) is newer.model
    assert not await model.calls.wait_idle(0.0)
    record.release()
    assert await model.calls.wait_idle(0.0)
    # Another call is not given what drains.
    current.set(CallRecord(path="/s/m", request_id="2"))
    assert model_of_call(repository, "", 0) is newer.model
    with pytest.raises(ModelUnavailable, match="echo/1 is being unloaded"):
        model_of_call(repository, "echo", 1)


async def test_server_that_shuts_down_gives_a_version_only_to_who_has_one() -> None:
    repository = Repository([entry(1)])
    repository.choose_default()
    record = CallRecord(path="/s/m", request_id="1")
    current.set(record)
    model = model_of_call(repository, "", 0)
    repository.is_closed = True
    assert model_of_call(repository, "", 0) is model
    late = CallRecord(path="/s/m", request_id="2")
    current.set(late)
    with pytest.raises(Draining):
        model_of_call(repository, "", 0)
    # It is counted for the model that it would have had.
    assert late.model == "echo" and late.kept == []
    record.release()
    assert await model.calls.wait_idle(0.0)
