"""Runs commands in this process, without standard input."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from seqserve.command.main import main

from ..fake_server import FakeServer


@pytest.fixture
def seqserve(
    server: FakeServer, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command against the server; returns exit status, output and errors."""

    def run(command: str, *argv: str) -> tuple[int, str, str]:
        status = main([command, "--target", server.target, *argv])
        streams = capsys.readouterr()
        return status, streams.out, streams.err

    return run
