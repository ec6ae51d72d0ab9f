from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.translating import PAIR
from tests.unit.gateway.without_socket import gateway_of, opened

from seqserve_gateway.libretranslate import FORM
from seqserve_gateway.proxies import Proxied, PublicAddress

PROXY, CDN, CALLER = "10.0.0.1", "192.0.2.7", "203.0.113.9"


async def seen(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with what an endpoint sees."""
    request = Request(scope)
    assert request.client is not None
    await JSONResponse([request.client.host, str(request.base_url)])(scope, receive, send)


def forwarded(**facts: str) -> dict[str, str]:
    names = {"caller": "for"}
    return {f"x-forwarded-{names.get(name, name)}": value for name, value in facts.items()}


def seen_by(headers: Mapping[str, str], peer: str = PROXY, public: str = "") -> list[str]:
    address = PublicAddress.parse(public) if public else None
    app = Proxied(seen, ["10.0.0.0/8", CDN, "2001:db8::/32"], address)
    client = TestClient(app, base_url="http://internal:5000", client=(peer, 1))
    answer: list[str] = client.get("/", headers=headers).json()
    return answer


AS_IT_COMES = "http://internal:5000/"
OUTSIDE = "https://example.com/mt/"


@pytest.mark.parametrize(
    ("headers", "caller", "address"),
    [
        ({}, PROXY, AS_IT_COMES),
        ({"x-forwarded-for": CALLER}, CALLER, AS_IT_COMES),
        ({"x-forwarded-proto": "https"}, PROXY, "https://internal:5000/"),
        (
            forwarded(caller=CALLER, proto="https", host="example.com", prefix="/mt/"),
            CALLER,
            OUTSIDE,
        ),
        # What comes before an address that is not trusted may be invented.
        (
            forwarded(caller=f"{PROXY}, {CALLER}, {CDN}", proto="ftp, https, http", prefix="/mt")
            | forwarded(host="evil.example, example.com, internal"),
            CALLER,
            OUTSIDE,
        ),
        ({"x-forwarded-for": f"{CALLER}:4321"}, CALLER, AS_IT_COMES),
        ({"x-forwarded-for": "[2001:db9::1]:4321"}, "2001:db9::1", AS_IT_COMES),
        ({"x-forwarded-for": "2001:db9::1"}, "2001:db9::1", AS_IT_COMES),
        ({"x-forwarded-for": "unknown"}, PROXY, AS_IT_COMES),
        ({"x-forwarded-host": 'a"b/c', "x-forwarded-prefix": "//evil"}, PROXY, AS_IT_COMES),
        (
            {"forwarded": f'For="{CALLER}:80";host=example.com;proto=https;prefix="/mt"'},
            CALLER,
            OUTSIDE,
        ),
        # The header of the standard is preferred, and each proxy's own word counts.
        (
            {"forwarded": f"for=1.2.3.4;host=evil.example, for={CALLER}"}
            | forwarded(caller="8.8.8.8"),
            CALLER,
            AS_IT_COMES,
        ),
        ({"forwarded": 'for="[2001:db8::1]:4711", for=_hidden'}, PROXY, AS_IT_COMES),
        ({"forwarded": f'for={CALLER};ext="a, for=1.2.3.4"'}, CALLER, AS_IT_COMES),
    ],
)
def test_trusted_proxy_names_caller_and_address(
    headers: dict[str, str], caller: str, address: str
) -> None:
    assert seen_by(headers) == [caller, address]
    # Nobody else does.
    assert seen_by(headers, CALLER) == [CALLER, AS_IT_COMES]


def test_public_address_is_that_of_all_links() -> None:
    headers = {"x-forwarded-for": CALLER, "x-forwarded-host": "other.example"}
    assert seen_by(headers, public="https://example.com/mt/") == [CALLER, OUTSIDE]
    assert seen_by({}, CALLER, public="https://example.com:8443")[1] == "https://example.com:8443/"


@pytest.mark.parametrize(
    "url",
    ["", "a.com", "ftp://a", "http://", "http://a/?q", "http://a/#b", "http://a b/", "http://a@b/"],
)
def test_what_is_no_address_of_a_gateway(url: str) -> None:
    assert PublicAddress.parse(url) is None


async def test_links_lead_through_the_proxy(server: FakeServer) -> None:
    proxy = forwarded(caller=CALLER, proto="https", host="example.com", prefix="/mt")
    gateway = gateway_of(server)
    async with opened(gateway, FORM, trusted_proxies=["127.0.0.1"], allowed_hosts=[]) as client:
        sent: Any = {"files": {"file": ("a.txt", b"One.")}, "data": PAIR}
        answer = await client.post("/translate_file", **sent, headers=proxy)
        url = answer.json()["translatedFileUrl"]
        assert url.startswith("https://example.com/mt/download_file/")
        path = url.removeprefix("https://example.com/mt")
        assert (await client.get(path, headers=proxy)).status_code == 200
        assert (await client.get("/", headers=proxy)).headers["location"] == "/mt/docs"
        assert (await client.get("/openapi.json", headers=proxy)).json()["servers"] == [
            {"url": "/mt"}
        ]
        page = (await client.get("/docs", headers=proxy)).text
        assert 'href="/' not in page
        # A prefix may be called like a path of the gateway.
        alike = {**proxy, "x-forwarded-prefix": "/languages"}
        assert (await client.get("/languages", headers=alike)).status_code == 200
        # A page in a browser cannot get past the check of hosts.
        evil = {**proxy, "x-forwarded-host": "localhost", "host": "evil.example"}
        assert (await client.get("/docs", headers=evil)).status_code == 421
    assert dict(server.metadata[-1])["x-forwarded-for"] == CALLER
