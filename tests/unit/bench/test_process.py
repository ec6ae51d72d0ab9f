"""A server as a process, with stand-ins for the server."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.process import ServerProcess

SERVES = """
import sys, time
while time.process_time() < 0.2:
    pass
print("stand-in ready on 127.0.0.1:5, metrics http://127.0.0.1:6/metrics, models: none", flush=True)
sys.stdin.read()
time.sleep(60)
"""
BREAKS = "import sys; sys.exit('no such model')"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stand_in.py"


def test_ready_server_tells_where_and_what_it_costs(module: Path, tmp_path: Path) -> None:
    module.write_text(SERVES)
    with ServerProcess("stand_in", [], tmp_path / "log") as server:
        assert server.address == "127.0.0.1:5"
        assert server.ready_after_s >= 0.2
        # Two clocks, each of whole ticks.
        assert server.cpu_s() >= 0.18
        assert server.main_thread_cpu_s() == pytest.approx(server.cpu_s(), abs=0.05)
        assert server.resident_bytes() > 1_000_000


def test_server_that_does_not_start_says_why(module: Path, tmp_path: Path) -> None:
    module.write_text(BREAKS)
    with pytest.raises(SystemExit, match="no such model"):
        ServerProcess("stand_in", [], tmp_path / "log")
