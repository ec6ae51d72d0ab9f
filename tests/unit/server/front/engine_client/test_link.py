import asyncio
import socket

from tests.unit.server.engine.fake_runtime import EOS

from seqserve_server.contract.errors import ModelUnavailable
from seqserve_server.contract.events import Event, Failed
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.link import EngineLink


def test_the_end_of_a_socket_that_was_replaced_is_not_that_of_the_engine() -> None:
    events: list[Event] = []
    lost: list[str] = []

    async def run() -> None:
        link = EngineLink("m/1")
        link.on_lost = lambda: lost.append("lost")
        pairs = [socket.socketpair() for _ in range(2)]
        await link.connect(pairs[0][0])
        spec = GenerateSpec(source=[5, EOS], options=DecodingOptions(max_decoding_length=9))
        link.submit(spec, lambda event, _: events.append(event))
        await asyncio.sleep(0)
        pairs[0][1].close()
        await link.connect(pairs[1][0])
        await asyncio.sleep(0.01)
        assert link.is_up and not lost and not link.pending
        pairs[1][1].close()
        while not lost:
            await asyncio.sleep(0)
        assert not link.is_up
        await link.stop()

    asyncio.run(run())
    [event] = events
    assert isinstance(event, Failed) and isinstance(event.error, ModelUnavailable)
    assert lost == ["lost"]
