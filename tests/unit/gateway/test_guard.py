"""Which hosts the gateway answers for."""

from __future__ import annotations

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from seqserve_gateway.app import Guard

PAGE = TestClient(Guard(PlainTextResponse("page"), ["Lab.example.com"]))


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "192.0.2.7", "lab.example.com"],
)
def test_known_names_and_addresses_are_answered(host: str) -> None:
    assert PAGE.get("/", headers={"host": host}).text == "page"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::1", "a:b:c"],
)
def test_other_names_are_refused(host: str) -> None:
    answer = PAGE.get("/", headers={"host": host})
    assert answer.status_code == 421
    assert "--allowed-host" in answer.text
    assert "content-security-policy" in answer.headers


async def test_two_hosts_are_refused() -> None:
    transport = httpx.ASGITransport(Guard(PlainTextResponse("page"), None))
    headers = [("host", "localhost"), ("host", "evil.example")]
    async with httpx.AsyncClient(transport=transport) as client:
        answer = await client.get("http://localhost/", headers=headers)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("site", "mode", "status"),
    [
        ("same-origin", "cors", 200),
        ("none", "navigate", 200),
        ("cross-site", "navigate", 200),
        ("cross-site", "no-cors", 403),
        ("cross-site", "cors", 403),
        ("same-site", "cors", 403),
    ],
)
def test_scripts_and_pictures_of_other_sites_are_refused(site: str, mode: str, status: int) -> None:
    headers = {"host": "localhost", "sec-fetch-site": site, "sec-fetch-mode": mode}
    assert PAGE.get("/", headers=headers).status_code == status
