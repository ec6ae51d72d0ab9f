"""Runs commands in this process, without standard input."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from seqserve.command.main import main

from ..fake_server import FakeServer

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def reports() -> list[str]:
    """The lines in which ``seqserve translate`` says what became of each file."""
    return []


@pytest.fixture
def seqserve(server: FakeServer, capsys: pytest.CaptureFixture[str], reports: list[str]) -> Run:
    """Runs a command against the server; returns exit status, output and errors."""

    def run(command: str, *argv: object) -> tuple[int, str, str]:
        status = main([command, "--target", server.target, *map(str, argv)])
        streams = capsys.readouterr()
        of_files = re.compile(r"^seqserve: .* passages? translated, .*\n", re.MULTILINE)
        reports.extend(of_files.findall(streams.err))
        return status, streams.out, of_files.sub("", streams.err)

    return run


@pytest.fixture
def translate(seqserve: Run, tmp_path: Path) -> Run:
    """Writes a document and translates it; returns exit status, output and errors."""

    def run(name: str, document: str | bytes, *argv: object) -> tuple[int, str, str]:
        content = document if isinstance(document, bytes) else document.encode()
        (tmp_path / name).write_bytes(content)
        return seqserve("translate", tmp_path / name, *argv)

    return run
