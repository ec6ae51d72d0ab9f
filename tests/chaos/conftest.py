"""The server that most chaos tests share; each leaves it idle."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.process import ServerProcess

PATIENT = ("--max-queue", "2048", "--max-queue-s", "3600", "--caller-share", "1")
"""Options with which no overload is refused; overload has its own tests."""
SLOTS = 16


@pytest.fixture(scope="package")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ("--slots", str(SLOTS), "--workers", "2", "--log-level", "warning", *PATIENT)
    process = ServerProcess(repository, tmp_path_factory.mktemp("server"), *options)
    with process.unharmed() as server:
        yield server
