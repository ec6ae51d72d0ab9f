"""The server that most end-to-end tests share, and a client of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.gateway import Gateway, gateway_of
from tests.support.process import MODELS, PATIENCE_S, ServerProcess

from seqserve import Client


@pytest.fixture(scope="session")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that tests share; each leaves it idle."""
    options = ("--slots", "16", "--workers", "2", "--log-format", "json")
    with ServerProcess(repository, tmp_path_factory.mktemp("server"), *options) as server:
        yield server
        server.stop()


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the shipped models and nothing but defaults."""
    with ServerProcess(MODELS, tmp_path_factory.mktemp("shipped")) as server:
        yield server
        server.stop()


@pytest.fixture(scope="session")
def gateway(shipped: ServerProcess) -> Iterator[Gateway]:
    """A gateway in front of it."""
    with gateway_of(shipped.target) as gateway:
        yield gateway


@pytest.fixture
def client(server: ServerProcess) -> Iterator[Client]:
    with Client(server.target, timeout_s=PATIENCE_S) as client:
        yield client


@pytest.fixture
def translator(shipped: ServerProcess) -> Iterator[Client]:
    with Client(shipped.target, timeout_s=PATIENCE_S) as client:
        yield client
