"""Probes, hosts and origins, and paths that are not there."""

from dataclasses import replace

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from tests.clock import Clock
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.admission import Admission
from seqserve_gateway.app import Guard, Readiness
from seqserve_gateway.v1 import FORM

ORIGIN = "https://example.com"
OTHER_SITE = {"origin": ORIGIN, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}
PAGE = TestClient(Guard(PlainTextResponse("page"), ["Lab.example.com"]))


@pytest.mark.parametrize("state", ["is_whole", "is_open"])
async def test_ready_while_the_server_answers_and_all_processes_take_calls(
    server: FakeServer, state: str
) -> None:
    gateway = gateway_of(server)
    async with opened(gateway, FORM) as client:
        assert (await client.get("/readyz")).status_code == 200
        assert (await client.get("/health")).json() == {"status": "ok"}
        setattr(gateway.admission, state, False)
        assert (await client.get("/readyz")).status_code == 503
        assert (await client.get("/health")).status_code == 503


async def test_alive_but_not_ready_without_server(client: AsyncClient, server: FakeServer) -> None:
    server.stop()
    assert (await client.get("/readyz")).status_code == 503
    assert (await client.get("/healthz")).text == "alive\n"


async def test_the_address_alone_leads_to_what_there_is(client: AsyncClient) -> None:
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
    gateway = replace(gateway_of(server), admission=Admission(calls=0))
    async with opened(gateway, FORM) as client:
        assert (await client.post("/v1/generate", json={})).status_code == 429
        for path in ("/healthz", "/readyz", "/health", "/metrics"):
            assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/v2", 404), ("GET", "/v1/generate", 405)]
)
async def test_unknown_path(client: AsyncClient, method: str, path: str, status: int) -> None:
    answer = await client.request(method, path, headers={"x-request-id": "i-1"})
    assert answer.json()["detail"].endswith("; /docs lists all paths")
    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["x-request-id"] == answer.json()["request_id"] == "i-1"


@pytest.mark.parametrize("origins", [[], ["https://other.com"]])
async def test_page_of_another_site_may_not_call(server: FakeServer, origins: list[str]) -> None:
    async with opened(gateway_of(server), FORM, cors_origins=origins) as client:
        answer = await client.get("/v1/models", headers=OTHER_SITE)
        preflight = await client.options("/v1/generate", headers=OTHER_SITE)
    assert answer.status_code == 403
    assert "--cors-origin" in answer.text
    assert "access-control-allow-origin" not in preflight.headers


@pytest.mark.parametrize("origins", [[ORIGIN], ["*"]])
async def test_page_of_a_named_origin_may_call(server: FakeServer, origins: list[str]) -> None:
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,x-request-timeout-s,x-stainless-os",
        "access-control-request-private-network": "true",
    }
    async with opened(gateway_of(server), FORM, cors_origins=origins) as client:
        preflight = await client.options("/v1/generate", headers=OTHER_SITE | asks)
        answer = await client.post("/v1/generate", json={"source": "a"}, headers=OTHER_SITE)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-private-network"] == "true"
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == origins[0]
    exposed = answer.headers["access-control-expose-headers"].lower()
    assert {"x-request-id", "x-translation-report"} <= {*exposed.split(", ")}


async def test_name_is_checked_only_where_names_are_given(server: FakeServer) -> None:
    headers = {"host": "gateway:5000"}
    async with opened(gateway_of(server), FORM, allowed_hosts=None) as client:
        assert (await client.get("/healthz", headers=headers)).status_code == 200
    async with opened(gateway_of(server), FORM, allowed_hosts=["lab"]) as client:
        assert (await client.get("/healthz", headers=headers)).status_code == 421


@pytest.mark.parametrize(
    ("host", "is_known"),
    [
        *((f"{name}:8080", True) for name in ("localhost", "127.0.0.1", "[::1]")),
        *((name, True) for name in ("localhost", "192.0.2.7", "lab.example.com")),
        *((name, False) for name in ("evil.example", "localhost.evil.example", "", "[::1")),
        *((name, False) for name in ("127.0.0.1.evil.example:80", "a:b:c")),
    ],
)
def test_only_known_names_and_addresses_are_answered(host: str, is_known: bool) -> None:
    answer = PAGE.get("/", headers={"host": host})
    if is_known:
        assert answer.text == "page"
    else:
        assert answer.status_code == 421 and "--allowed-host" in answer.text
        assert "content-security-policy" in answer.headers


async def test_check_of_a_balancer_without_a_host_is_answered() -> None:
    async with AsyncClient(transport=ASGITransport(Guard(PlainTextResponse("page"), []))) as client:
        request = client.build_request("GET", "http://evil.example/")
        del request.headers["host"]
        assert (await client.send(request)).status_code == 200


async def test_two_hosts_are_refused() -> None:
    transport = ASGITransport(Guard(PlainTextResponse("page"), None))
    headers = [("host", "localhost"), ("host", "evil.example")]
    async with AsyncClient(transport=transport) as client:
        answer = await client.get("http://localhost/", headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("method", "site", "mode", "status"),
    [
        ("GET", "same-origin", "cors", 200),
        ("GET", "none", "navigate", 200),
        ("GET", "cross-site", "navigate", 200),
        ("GET", "cross-site", "no-cors", 403),
        ("GET", "cross-site", "cors", 403),
        ("GET", "same-site", "cors", 403),
        ("POST", "same-origin", "navigate", 200),
        ("POST", "cross-site", "navigate", 403),
    ],
)
def test_scripts_pictures_and_forms_of_other_sites_are_refused(
    method: str, site: str, mode: str, status: int
) -> None:
    headers = {"host": "localhost", "sec-fetch-site": site, "sec-fetch-mode": mode}
    assert PAGE.request(method, "/", headers=headers).status_code == status
