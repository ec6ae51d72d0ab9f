"""A call keeps the version that it got until it ends; a passed deadline is no cancel."""

import pytest
from tests.unit.server.front.echo import echo_model, manifest

from seqserve_server.contract.errors import Draining, ModelUnavailable
from seqserve_server.front.call.server_call import ServerCall, has_passed
from seqserve_server.front.models.lifecycle import ModelState
from seqserve_server.front.models.repository import Entry, Repository


def entry(version: int) -> Entry:
    model = echo_model(manifest(version=version))
    return Entry(name="echo", version=version, state=ModelState.READY, model=model)


async def test_call_that_asks_again_gets_the_version_it_has() -> None:
    older, newer = entry(1), entry(2)
    repository = Repository([older])
    repository.choose_default()
    call = ServerCall(path="/s/m", request_id="1")
    model = await call.resolve(repository, "", 0)
    assert model is older.model and call.model == "echo"
    repository.add(newer)
    older.move(ModelState.DRAINING)
    for name, version in (("", 0), ("echo", 0), ("echo", 1)):
        assert await call.resolve(repository, name, version) is model
    assert await call.resolve(repository, "echo", 2) is newer.model
    assert not await model.calls.wait_idle(0.0)
    call.release_models()
    assert await model.calls.wait_idle(0.0)
    # A version that drains takes no other call.
    other = ServerCall(path="/s/m", request_id="2")
    assert await other.resolve(repository, "", 0) is newer.model
    with pytest.raises(ModelUnavailable, match="echo/1 is being unloaded"):
        await other.resolve(repository, "echo", 1)


async def test_server_that_shuts_down_gives_a_version_only_to_a_call_that_has_one() -> None:
    repository = Repository([entry(1)])
    repository.choose_default()
    call = ServerCall(path="/s/m", request_id="1")
    model = await call.resolve(repository, "", 0)
    repository.is_closed = True
    assert await call.resolve(repository, "", 0) is model
    late = ServerCall(path="/s/m", request_id="2")
    with pytest.raises(Draining):
        await late.resolve(repository, "", 0)
    # The refusal counts for the model that the call would have had.
    assert late.model == "echo" and late.models == []
    call.release_models()
    assert await model.calls.wait_idle(0.0)


@pytest.mark.parametrize(
    ("remaining_s", "elapsed_s", "expected"),
    [
        (None, 1000.0, False),
        (0.0, 1.0, True),
        (-3.0, 1.0, True),
        # The wire rounds a timeout up by as much as 1 %.
        (0.09, 10.0, True),
        (0.5, 10.0, False),
        (0.02, 0.01, False),
    ],
)
def test_deadline_has_passed_within_rounding_and_jitter(
    remaining_s: float | None, elapsed_s: float, expected: bool
) -> None:
    assert has_passed(remaining_s, elapsed_s) is expected
