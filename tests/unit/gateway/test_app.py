"""Probes, hosts and origins, and paths that are not there."""

from __future__ import annotations

import pytest
from tests.clock import Clock
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.app import Readiness
from seqserve_gateway.v1 import FORM

ORIGIN = "https://example.com"
OTHER_SITE = {"origin": ORIGIN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}


async def test_ready_while_the_server_answers(server: FakeServer) -> None:
    async with opened(gateway_of(server), FORM) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/healthz")).text == "alive\n"


async def test_not_ready_without_a_server_but_alive(server: FakeServer) -> None:
    server.stop()
    async with opened(gateway_of(server), FORM) as client:
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/healthz")).status_code == 200


async def test_not_ready_while_it_drains(server: FakeServer) -> None:
    gateway = gateway_of(server)
    async with opened(gateway, FORM) as client:
        gateway.admission.is_open = False
        assert (await client.get("/readyz")).status_code == 503


async def test_the_address_alone_leads_to_what_there_is(server: FakeServer) -> None:
    async with opened(gateway_of(server), FORM) as client:
        answer = await client.get("/")
        assert (answer.status_code, answer.headers["location"]) == (307, "docs")


async def test_server_is_not_asked_for_every_probe(server: FakeServer) -> None:
    clock = Clock()
    gateway = gateway_of(server)
    readiness = Readiness(gateway.upstream.client, clock)
    for _ in range(3):
        assert await readiness.check()
    assert len(server.metadata) == 1
    clock.now_s += 2
    assert await readiness.check()
    assert len(server.metadata) == 2
    await gateway.upstream.close()


async def test_probe_needs_no_place_among_the_calls(server: FakeServer) -> None:
    gateway = gateway_of(server)
    gateway.admission.free = 0
    async with opened(gateway, FORM) as client:
        assert (await client.post("/v1/generate", json={})).status_code == 429
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v2", 404), ("GET", "/v1/generate", 405)]
)
async def test_path_that_is_not_there(
    server: FakeServer, method: str, path: str, status: int
) -> None:
    async with opened(gateway_of(server), FORM) as client:
        answer = await client.request(method, path, headers={"x-request-id": "i-1"})
        assert answer.json()["detail"].endswith("; /docs lists what there is")
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "i-1"


async def test_page_of_another_site_may_not_call(server: FakeServer) -> None:
    async with opened(gateway_of(server), FORM) as client:
        answer = await client.get("/v1/models", headers=OTHER_SITE)
        preflight = await client.options("/v1/generate", headers=OTHER_SITE)
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("origins", [[ORIGIN], ["*"]])
async def test_page_of_a_named_origin_may_call(server: FakeServer, origins: list[str]) -> None:
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,authorization,x-request-timeout-s",
    }
    async with opened(gateway_of(server), FORM, cors_origins=origins) as client:
        preflight = await client.options("/v1/generate", headers=OTHER_SITE | asks)
        answer = await client.post("/v1/generate", json={"source": "a"}, headers=OTHER_SITE)
    assert preflight.status_code == 200
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origins[0]
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()


async def test_other_origins_stay_out(server: FakeServer) -> None:
    async with opened(gateway_of(server), FORM, cors_origins=["https://other.com"]) as client:
        answer = await client.get("/v1/models", headers=OTHER_SITE)
    assert answer.status_code == 403


async def test_name_is_checked_only_where_names_are_given(server: FakeServer) -> None:
    headers = {"host": "gateway:5000"}
    async with opened(gateway_of(server), FORM, allowed_hosts=None) as client:
        assert (await client.get("/healthz", headers=headers)).status_code == 200
    async with opened(gateway_of(server), FORM, allowed_hosts=["lab"]) as client:
        assert (await client.get("/healthz", headers=headers)).status_code == 421
