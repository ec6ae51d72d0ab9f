"""Servers for the tests: one that most share, and a narrow one that is easily full."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seqserve import Client
from seqserve_server.tokenizer import Tokenizer

from .babble import export_babble
from .process import ServerProcess

if TYPE_CHECKING:
    from seqserve_export.artifact import Description


@pytest.fixture(scope="session")
def repository(
    tmp_path_factory: pytest.TempPathFactory,
    tiny_tokenizer: Tokenizer,
    tiny_description: Description,
) -> Path:
    """A folder of models that holds ``babble/1``. Not to be changed."""
    folder = tmp_path_factory.mktemp("babble") / "models"
    export_babble(folder, tiny_tokenizer, tiny_description)
    return folder


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
