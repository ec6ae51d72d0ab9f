import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from httpx import AsyncClient
from starlette.responses import JSONResponse, Response
from tests.support.process import eventually
from tests.unit.client.fake_server import PATIENCE_S, FakeServer
from tests.unit.gateway.without_socket import Reader, client_of, gateway_of, opened

from seqserve_gateway.admission import Admission, Bodies
from seqserve_gateway.app import app_of
from seqserve_gateway.call import Call
from seqserve_gateway.endpoint import Endpoint, Form
from seqserve_gateway.failure import Failure


async def shout(call: Call) -> Response:
    facts = json.loads(call.body)
    if "api_key" in facts:
        call.token = facts["api_key"]
    if facts["q"] == "stumble":
        raise ZeroDivisionError("a secret")
    result = await call.client.generate(facts["q"], timeout_s=call.left_s)
    return JSONResponse({"text": result.text})


def in_own_shape(failure: Failure, request_id: str) -> Response:
    return JSONResponse({"error": failure.details, "id": request_id}, failure.status)


FORM = Form(name="shout", endpoints=[Endpoint(path="/shout", answer=shout)], error=in_own_shape)


async def test_endpoint_answers_with_the_server(client: AsyncClient) -> None:
    answer = await client.post("/shout", json={"q": "a b"})
    assert (answer.status_code, answer.json()) == (200, {"text": "A B"})


async def test_error_of_a_call_is_written_in_the_shape_of_the_form(client: AsyncClient) -> None:
    headers = {"x-request-id": "mine"}
    body = {"q": "fail RESOURCE_EXHAUSTED"}
    answer = await client.post("/shout", json=body, headers=headers)
    assert answer.status_code == 429
    assert answer.json() == {"error": "resource_exhausted, says the fake", "id": "mine"}
    assert answer.headers["retry-after"] == "1"


async def test_fault_of_an_endpoint_shows_an_id_and_no_secret(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.post("/shout", json={"q": "stumble"})
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["id"] in caplog.text


async def test_calls_carry_token_id_and_trace(client: AsyncClient, server: FakeServer) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {"authorization": "Bearer abc", "x-request-id": "i-1", "traceparent": trace}
    answer = await client.post("/shout", json={"q": "a"}, headers=headers)
    sent = server.metadata[-1]
    assert (sent["authorization"], sent["x-request-id"]) == ("Bearer abc", "i-1")
    assert sent["traceparent"] == trace
    assert answer.headers["x-request-id"] == "i-1"


async def test_requests_do_not_mix_their_tokens(client: AsyncClient, server: FakeServer) -> None:
    await asyncio.gather(
        *(client.post("/shout", json={"q": f"late {n}", "api_key": f"k{n}"}) for n in range(8))
    )
    carried = {
        request.source: sent["authorization"]
        for request, sent in zip(server.requests, server.metadata, strict=True)
    }
    assert sorted(server.authorizations) == [f"Bearer k{n}" for n in range(8)]
    assert len(carried) == 8


@pytest.mark.parametrize("token", ["Bearer", "Bearer a b", "bearer \x7f"])
async def test_malformed_token_is_refused_and_not_replaced(server: FakeServer, token: str) -> None:
    async with opened(gateway_of(server, token="lent"), FORM) as client:
        answer = await client.post("/shout", json={"q": "a"}, headers={"authorization": token})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert server.requests == []


@pytest.mark.parametrize("own", ["a b", "ü", "x" * 65, ""])
async def test_id_that_a_log_could_not_hold_is_replaced(
    client: AsyncClient, server: FakeServer, own: str
) -> None:
    headers = {"x-request-id": own.encode()}
    answer = await client.post("/shout", json={"q": "a"}, headers=headers)
    given = answer.headers["x-request-id"]
    assert given and given != own
    assert server.metadata[-1]["x-request-id"] == given


async def test_deadline_is_that_of_the_header(client: AsyncClient, server: FakeServer) -> None:
    headers = {"x-request-timeout-s": "10"}
    await client.post("/shout", json={"q": "a"}, headers=headers)
    late = {"x-request-timeout-s": "0.05"}
    answer = await client.post("/shout", json={"q": "hang on"}, headers=late)
    # The default is 30 s; gRPC rounds a deadline, and clocks differ.
    assert server.timeouts_s[0] < 20
    assert answer.status_code == 504


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "301", ""])
async def test_deadline_out_of_bounds_is_refused(client: AsyncClient, text: str) -> None:
    headers = {"x-request-timeout-s": text}
    answer = await client.post("/shout", json={"q": "a"}, headers=headers)
    assert answer.status_code == 400
    assert "x-request-timeout-s" in answer.json()["error"]


async def test_call_that_is_not_admitted_is_refused_with_a_pause(server: FakeServer) -> None:
    gateway = replace(gateway_of(server), admission=Admission(1, rate=float("inf")))
    async with opened(gateway, FORM) as client:
        with gateway.admission.call():
            beyond_places = await client.post("/shout", json={"q": "a"})
        admitted = await client.post("/shout", json={"q": "a"})
        gateway.admission.is_open = False
        draining = await client.post("/shout", json={"q": "a"})
    answers = (beyond_places, admitted, draining)
    assert [answer.status_code for answer in answers] == [429, 200, 503]
    assert beyond_places.headers["retry-after"] == draining.headers["retry-after"] == "1"


async def test_request_beyond_the_drain_is_refused_with_a_pause(server: FakeServer) -> None:
    gateway = gateway_of(server)
    async with opened(gateway, FORM) as client:
        in_progress = asyncio.create_task(client.post("/shout", json={"q": "hang on"}))
        await eventually(lambda: bool(server.requests))
        gateway.admission.is_open = False
        in_progress.cancel()
        cut = await in_progress
    assert (cut.status_code, cut.headers["retry-after"]) == (503, "1")
    assert cut.json()["error"] == "the gateway is shutting down"


async def test_body_over_the_bound_is_refused_declared_or_not(server: FakeServer) -> None:
    async def parts() -> Any:
        for _ in range(3):
            yield b" " * 10

    gateway = replace(gateway_of(server), bodies=Bodies(20))
    async with opened(gateway, FORM) as client:
        statuses = [
            (await client.post("/shout", content=content)).status_code
            for content in (b" " * 21, parts())
        ]
    assert statuses == [413, 413]
    assert gateway.bodies.memory.free == Bodies(20).memory.free


async def test_requests_share_memory_and_leave_room_for_others(server: FakeServer) -> None:
    gateway = replace(gateway_of(server), bodies=Bodies(24, max_memory_bytes=0))
    app, body = app_of(gateway, [FORM]), {"q": "another text"}
    async with client_of(app) as client, client_of(app, "10.0.0.2") as other:
        in_progress = asyncio.create_task(client.post("/shout", json={"q": "hang on and on"}))
        await eventually(lambda: bool(server.requests))
        refused = await client.post("/shout", json=body)
        answered = await other.post("/shout", json=body)
        in_progress.cancel()
        await asyncio.wait([in_progress])
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert answered.status_code == 200
    assert gateway.bodies.memory.free == Bodies(24, max_memory_bytes=0).memory.free


async def test_body_that_does_not_arrive_takes_no_place(server: FakeServer) -> None:
    arrived = asyncio.Event()

    async def slowly() -> Any:
        yield b'{"q": '
        await arrived.wait()
        yield b'"a"}'

    gateway = replace(gateway_of(server), admission=Admission(1, rate=float("inf")))
    async with opened(gateway, FORM) as client:
        slow = asyncio.create_task(client.post("/shout", content=slowly()))
        await asyncio.sleep(0)
        assert (await client.post("/shout", json={"q": "a"})).status_code == 200
        arrived.set()
        assert (await slow).json() == {"text": "A"}


async def test_body_that_takes_too_long_ends_with_408(server: FakeServer) -> None:
    async def never() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    gateway = replace(gateway_of(server), bodies=Bodies(timeout_s=0.05))
    async with opened(gateway, FORM) as client:
        answer = await client.post("/shout", content=never())
    assert (answer.status_code, answer.headers["connection"]) == (408, "close")


async def test_client_that_leaves_cancels_its_call(server: FakeServer) -> None:
    gateway = gateway_of(server)
    app = app_of(gateway, [FORM])
    reader = Reader("/shout", {"q": "hang on"})
    async with app.router.lifespan_context(app):
        visit = asyncio.create_task(reader.visit(app))
        await eventually(lambda: bool(server.requests))
        reader.gone.set()
        await asyncio.wait_for(visit, PATIENCE_S)
        assert await asyncio.to_thread(server.cancelled.wait, PATIENCE_S)
    assert (reader.status, gateway.admission.in_progress) == (0, 0)
    labels = {"form": "shout", "path": "/shout", "code": "CANCELLED"}
    assert gateway.metrics.registry.get_sample_value("seqserve_http_requests_total", labels) == 1


async def test_cancelled_task_is_not_mistaken_for_a_client_that_left(server: FakeServer) -> None:
    app = app_of(gateway_of(server), [FORM])
    async with app.router.lifespan_context(app):
        visit = asyncio.create_task(Reader("/shout", {"q": "hang on"}).visit(app))
        await eventually(lambda: bool(server.requests))
        visit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await visit
    server.cancelled.set()


async def test_requests_are_counted_by_outcome(client: AsyncClient) -> None:
    for text in ("a", "a", "fail NOT_FOUND"):
        await client.post("/shout", json={"q": text})
    metrics = (await client.get("/metrics")).text
    labels = 'form="shout",path="/shout"'
    assert f'seqserve_http_requests_total{{code="OK",{labels}}} 2.0' in metrics
    assert f'seqserve_http_requests_total{{code="NOT_FOUND",{labels}}} 1.0' in metrics
    assert f"seqserve_http_request_duration_seconds_count{{{labels}}} 2.0" in metrics
