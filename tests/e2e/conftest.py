"""The server that most end-to-end tests share, and a client of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from seqserve import Client

from .process import ServerProcess


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that tests share; each leaves it idle."""
    options = ("--slots", "16", "--workers", "2", "--log-format", "json")
    with ServerProcess(repository, tmp_path_factory.mktemp("server"), *options) as server:
        yield server
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.stderr, "something went wrong unnoticed"


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target) as client:
        yield client
