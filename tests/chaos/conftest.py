"""The server that most tests of faults share; each leaves it as it was."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.process import ServerProcess

PATIENT = ("--max-queue", "2048", "--max-queue-s", "3600", "--caller-share", "1")
"""What no overload is refused by: it has tests of its own."""
SLOTS = 16


@pytest.fixture(scope="package")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    options = ("--slots", str(SLOTS), "--workers", "2", "--log-level", "warning", *PATIENT)
    with ServerProcess(repository, tmp_path_factory.mktemp("server"), *options) as server:
        engines = server.engines()
        yield server
        assert server.engines() == engines, "one has begun anew"
        server.signal(signal.SIGTERM)
        assert server.wait() == 0
        assert "Traceback" not in server.stderr, "something went wrong unnoticed"
