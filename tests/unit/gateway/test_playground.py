import pytest
from tests.unit.client.fake_server import FakeServer
from tests.unit.gateway.without_socket import client_of, gateway_of

from seqserve.errors import OptionError
from seqserve_gateway import PAGE
from seqserve_gateway.playground import main, page_of


@pytest.mark.parametrize("address", ["8080", "localhost", ":8080", "[::1]:x", "localhost:99999"])
def test_malformed_address_is_refused_by_its_flag(address: str) -> None:
    with pytest.raises(OptionError, match=r"--listen: .* is not host:port"):
        main(["--listen", address])


async def test_page_and_the_calls_that_it_makes_are_served(server: FakeServer) -> None:
    types = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg"}
    async with client_of(page_of(gateway_of(server))) as client:
        page = await client.get("/")
        answer = await client.post("/v1/generate", json={"source": "a b"})
        files = {file: await client.get(f"/{file.name}") for file in PAGE.iterdir()}
        missing = await client.get("/pane.js")
    assert page.text == (PAGE / "index.html").read_text(encoding="utf-8")
    assert answer.json()["hypotheses"][0]["text"] == "A B"
    assert (missing.status_code, missing.json()["code"]) == (404, "NOT_FOUND")
    for file, served in files.items():
        assert served.headers["content-type"].startswith(types[file.suffix[1:]])
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'") and "unsafe" not in policy


def test_page_has_no_script_style_or_markup_that_its_policy_forbids() -> None:
    texts = {file.name: file.read_text(encoding="utf-8") for file in PAGE.iterdir()}
    page = texts.pop("index.html")
    assert page.count("<script") == page.count('<script type="module" src="page.js"></script>') == 1
    assert "style=" not in page and "<style" not in page
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(")
    assert [word for word in forbidden for text in texts.values() if word in text] == []
