"""The code of docs/client.md runs, in its order, against a server with the shipped model."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.support.process import ROOT, ServerProcess

from seqserve import Client

Run = Callable[[str], dict[str, Any]]

PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
SECTIONS = {
    title: code
    for title, section in re.findall(r"^## (.+)\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE)
    if (code := "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL)))
}


@pytest.fixture
def run(shipped: ServerProcess) -> Run:
    def run(title: str) -> dict[str, Any]:
        # Imported by the first section of the page.
        names: dict[str, Any] = {"Client": Client}
        code = re.sub(r"localhost:5005\d", shipped.target, SECTIONS[title])
        exec(compile(code, f"docs/client.md, {title}", "exec"), names)
        return names

    return run


PRINTED = {
    "Blocking": "Der Kaffee schmeckt gut.",
    "Streaming": "StopReason.EOS",
    "Many texts": "Es regnet. Wir haben einen guten Film gesehen. Der Kaffee schmeckt gut.",
    "Languages": "Der Kaffee schmeckt gut. [('ko-en', 'The coffee tastes good.'), ('en-de', '')]",
    "asyncio": "Der Kaffee schmeckt gut.",
    "Deadlines and time limits": "StopReason.EOS Es regnet.",
    "Retries": "Es regnet.",
    "Several servers": "Es regnet.\n" * 8,
    "Errors": "options.beam_size: is 0",
    "TLS, tokens, ids, traces": "Es regnet.",
}


def test_every_section_with_code_is_run() -> None:
    assert SECTIONS.keys() == {*PRINTED, "In a web service", "In notebooks"}


@pytest.mark.parametrize(("title", "printed"), PRINTED.items())
def test_code_prints_what_the_page_says(
    run: Run, capsys: pytest.CaptureFixture[str], title: str, printed: str
) -> None:
    run(title)
    assert printed in capsys.readouterr().out


def test_the_web_service_translates_streams_and_reports_errors(run: Run) -> None:
    with TestClient(run("In a web service")["app"]) as http:
        texts = {"text": "The coffee tastes good. We saw a good film."}
        answer = http.post("/translate", json=texts)
        assert answer.status_code == 200
        assert "Kaffee" in answer.json()["text"]
        streamed = http.get("/stream", params={"text": "The coffee tastes good."})
        assert streamed.text == "Der Kaffee schmeckt gut."
        too_long = http.post("/translate", json={"text": "It rains. " * 5_000})
        assert too_long.status_code == 422
        empty = http.get("/stream", params={"text": ""})
        assert (empty.status_code, empty.json()["error"]) == (422, "source: is empty")
        assert too_long.json()["id"]


def test_results_are_tables_of_a_notebook(run: Run) -> None:
    names = run("In notebooks")
    for result in (names["shown"], names["attention"]):
        assert "<table" in result._repr_html_()
