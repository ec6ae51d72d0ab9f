import asyncio

import pytest
from tests.support.process import eventually
from tests.support.sockets import connections_to
from tests.unit.client.fake_server import PATIENCE_S, FakeServer

from seqserve.errors import OptionError
from seqserve.retry import RetryPolicy
from seqserve.tls import TLS
from seqserve_gateway.call import BATCH
from seqserve_gateway.failure import Failure
from seqserve_gateway.reading import Job, Part
from seqserve_gateway.upstream import Upstream

REMOTE = "models.example.com:50051"
BEARER = (("authorization", "Bearer t1"),)


def test_token_of_a_caller_crosses_no_network_in_clear() -> None:
    assert Upstream(target=REMOTE).authorization("t1") == ()
    assert Upstream(target="localhost:1").authorization("t1") == BEARER
    assert Upstream(target=REMOTE, tls=TLS()).authorization("t1") == BEARER
    with pytest.raises(OptionError, match="in clear"):
        Upstream(target=REMOTE, token="own")


def test_own_token_is_for_callers_without_one() -> None:
    upstream = Upstream(target="localhost:1", token="own")
    assert upstream.authorization(None) == (("authorization", "Bearer own"),)
    assert upstream.authorization("t1") == BEARER
    # A malformed one is no valid one.
    with pytest.raises(Failure) as refused:
        upstream.authorization("")
    assert (refused.value.status, refused.value.details) == (401, "no valid token")


async def test_call_is_answered_by_a_server_that_comes_back_as_the_other_one_goes() -> None:
    one, other = FakeServer(), FakeServer()
    retry = RetryPolicy(max_attempts=2, away_timeout_s=PATIENCE_S)
    target = f"{one.target},{other.target}"
    upstream = Upstream(target=target, timeout_s=2 * PATIENCE_S, retry=retry)
    for number in range(4):
        await upstream.client.generate(f"both {number}")
    one.stop()
    await upstream.client.generate("one is left")
    other.stop()
    waiting = asyncio.create_task(upstream.client.generate("none is left"))
    # Long enough for two attempts.
    await asyncio.sleep(0.5)
    again = FakeServer(target=one.target)
    assert (await waiting).text
    await upstream.close()
    again.stop()


async def test_many_requests_open_another_connection_if_they_may() -> None:
    for most, opened in ((None, 2), (1, 1)):
        server = FakeServer()
        upstream = Upstream(target=server.target, connections=most)
        await asyncio.gather(*(upstream.client.generate("a") for _ in range(40)))
        await eventually(lambda: connections_to(server.target) == opened)  # noqa: B023
        await upstream.close()
        server.stop()


async def test_each_of_many_processes_has_room_for_a_batch_and_a_document() -> None:
    upstream = Upstream(target="localhost:1", processes=100)
    async with asyncio.timeout(PATIENCE_S), upstream.turns.turn("a", BATCH):
        job = ("read", Job("html", ["<p>one</p>"]))
        assert await upstream.readers.outcome("a", lambda size: None, *job) == [
            [Part("one"), Part("")]
        ]
    await upstream.close()
