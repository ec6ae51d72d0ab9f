import asyncio

import pytest
from httpx import AsyncClient
from starlette.responses import JSONResponse, Response
from tests.support.process import eventually
from tests.unit.client.fake_server import PATIENCE_S, FakeServer
from tests.unit.gateway.without_socket import Reader, client_of, gateway_of, texts_of

from seqserve.v1 import generation_pb2
from seqserve_gateway.admission import Turns
from seqserve_gateway.app import app_of
from seqserve_gateway.call import BATCH, RICH_BATCH, Call
from seqserve_gateway.endpoint import Endpoint, Form


def _text_of(response: generation_pb2.GenerateResponse) -> str:
    return response.hypotheses[0].text


async def shout_all(call: Call) -> Response:
    body = call.json()
    options = body.get("options", {"beam_size": 2})
    return JSONResponse(await call.generate_all(body["q"], _text_of, **options))


FORM = Form(name="shout", endpoints=[Endpoint(path="/shout", answer=shout_all)])


async def test_array_is_answered_at_low_priority(client: AsyncClient, server: FakeServer) -> None:
    texts = [f"w{n}" for n in range(60)]
    answer = await client.post("/shout", json={"q": texts})
    assert answer.json() == [text.upper() for text in texts]
    assert {request.priority for request in server.requests} == {generation_pb2.PRIORITY_LOW}
    assert {request.options.beam_size for request in server.requests} == {2}


async def test_single_text_has_normal_priority(client: AsyncClient, server: FakeServer) -> None:
    assert (await client.post("/shout", json={"q": ["a"]})).json() == ["A"]
    assert server.requests[0].priority != generation_pb2.PRIORITY_LOW


async def test_error_of_a_text_is_that_of_all(client: AsyncClient, server: FakeServer) -> None:
    texts = ["fail INVALID_ARGUMENT", *("a" for _ in range(1, BATCH)), *("hang" for _ in range(20))]
    answer = await client.post("/shout", json={"q": texts})
    assert (answer.status_code, answer.json()["field"]) == (400, "source")
    assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)


@pytest.mark.parametrize("status", ["UNAUTHENTICATED", "NOT_FOUND"])
async def test_error_that_ends_the_call_ends_the_array(client: AsyncClient, status: str) -> None:
    answer = await client.post("/shout", json={"q": ["a", f"end {status}", "b"]})
    assert answer.json()["code"] == status


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, BATCH),
        ({"beam_size": 4}, BATCH),
        ({"return_alignment": True}, RICH_BATCH),
        ({"beam_size": 4, "num_hypotheses": 3}, RICH_BATCH),
    ],
)
async def test_array_is_sent_in_few_calls(
    client: AsyncClient, server: FakeServer, options: dict[str, object], size: int
) -> None:
    texts = [f"w{n}" for n in range(3 * size - 1)]
    answer = await client.post("/shout", json={"q": texts, "options": options})
    assert answer.json() == [text.upper() for text in texts]
    assert len(server.metadata) == 3


async def test_client_that_leaves_cancels_a_window_of_texts(server: FakeServer) -> None:
    app = app_of(gateway_of(server), [FORM])
    reader = Reader("/shout", {"q": [f"hang {n}" for n in range(4 * BATCH)]})
    async with app.router.lifespan_context(app):
        visit = asyncio.create_task(reader.visit(app))
        while len(server.requests) < 2 * BATCH:
            await asyncio.sleep(0.01)
        reader.gone.set()
        await asyncio.wait_for(visit, PATIENCE_S)
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
    assert sorted(texts_of(server)) == sorted(f"hang {n}" for n in range(2 * BATCH))


async def test_long_texts_are_fewer_in_a_batch(client: AsyncClient, server: FakeServer) -> None:
    texts = [f"{letter} " * 6_000 for letter in "abcdef"]
    answer = await client.post("/shout", json={"q": texts})
    assert answer.json() == [text.upper() for text in texts]
    assert len(server.metadata) == len(texts)


async def test_arrays_of_callers_take_turns(server: FakeServer) -> None:
    gateway = gateway_of(server)
    gateway.upstream.turns = turns = Turns(BATCH, BATCH)
    app, texts = app_of(gateway, [FORM]), [f"w{n}" for n in range(BATCH + 1)]
    async with client_of(app) as first, client_of(app, "10.0.0.2") as second:
        many = [
            asyncio.create_task(first.post("/shout", json={"q": ["hang"] * (BATCH + 1)}))
            for _ in range(9)
        ]
        await eventually(lambda: bool(server.requests))
        asked = asyncio.create_task(second.post("/shout", json={"q": texts}))
        await eventually(lambda: len(turns._waiting) == 2)
        # Its batches hang no longer.
        server.cancelled.set()
        answer = await asked
        before = texts_of(server).count("hang")
        await asyncio.wait(many)
    assert answer.json() == [text.upper() for text in texts]
    # A batch of one, a batch of the other; at most two before and two after.
    assert before <= len(texts) + 4 * BATCH
