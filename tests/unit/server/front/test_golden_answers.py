import pytest
from tests.unit.server.front.golden.calls import SERVERS
from tests.unit.server.front.golden.recording import front, recorded


@pytest.mark.parametrize("server", SERVERS)
async def test_callers_and_engine_see_what_was_recorded(server: str) -> None:
    entries = [(call, seen) for call, seen in recorded() if call.server == server]
    assert entries
    async with front(server) as running:
        for index, (call, seen) in enumerate(entries):
            label = f"{server} {index}: {call.name}"
            assert (label, await running.record(call)) == (label, seen)
