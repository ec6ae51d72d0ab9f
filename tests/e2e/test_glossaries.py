"""Glossaries of a running server: named by requests, listed by the command, read again."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import MODELS, ServerProcess, until

from seqserve import Client
from seqserve.command.main import main

COFFEE = "The coffee tastes good."
DRINKS = "# drinks\ncoffee\tMokka\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("glossaries")
    (folder / "drinks.en-de.tsv").write_text(DRINKS)
    return folder


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ("--glossaries", str(folder), "--watch-interval-s", "0.05")
    with ServerProcess(MODELS, tmp_path_factory.mktemp("server"), *options) as server:
        yield server
        server.stop()


def test_the_command_lists_glossaries_and_uses_one(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    target = ["--target", server.target]
    assert main(["models", "--glossaries", *target]) == 0
    assert "drinks  en    de  1" in capsys.readouterr().out
    languages = ["--source-language", "en", "--target-language", "de"]
    assert main(["generate", COFFEE, "--glossary", "drinks", *languages, *target]) == 0
    assert "Mokka" in capsys.readouterr().out


def test_a_file_that_changes_is_read_again_and_a_broken_one_is_not_used(
    folder: Path, server: ServerProcess
) -> None:
    file = folder / "drinks.en-de.tsv"
    with Client(server.target) as client:
        file.write_text("coffee\n")
        until(lambda: bool(client.glossary("drinks").fault))
        assert server.value("reload_successful", option="--glossaries") == 0
        assert client.glossary("drinks").entries == (("coffee", "Mokka"),)
        file.write_text("coffee\tBohnenkaffee\n")
        until(lambda: client.glossary("drinks").entries == (("coffee", "Bohnenkaffee"),))
        assert server.value("reload_successful", option="--glossaries") == 1
        answer = client.generate(COFFEE, model="en-de", glossary="drinks")
        # The other test may come next.
        file.write_text(DRINKS)
        until(lambda: client.glossary("drinks").entries == (("coffee", "Mokka"),))
    assert "Bohnenkaffee" in answer.text or answer.hypotheses[0].unmet_terms
