"""A server as a process, with stand-ins for the server."""

from pathlib import Path

import pytest
from bench.drivers.server_process import Server, ServerProcess, seqserve_server

from seqserve_server.artifact.manifest import Manifest

SHARED_BYTES = 64 << 20
# It and its child each work for a while, over memory that they share.
SERVES = f"""
import mmap, os, time

def work(seconds):
    assert sum(shared[::4096]) == {SHARED_BYTES} // 4096
    while time.process_time() < seconds:
        pass

shared = mmap.mmap(-1, {SHARED_BYTES})
shared.write(bytes([1]) * {SHARED_BYTES})
done, life = os.pipe(), os.pipe()
if not os.fork():
    os.close(life[1])
    work(0.4)
    os.write(done[1], b"1")
    # Until the parent ends.
    os.read(life[0], 1)
    os._exit(0)
work(0.2)
os.read(done[0], 1)
print("stand-in ready on 127.0.0.1:5, metrics http://127.0.0.1:6/metrics, models: none", flush=True)
time.sleep(60)
"""
STAND_IN = Server("stand-in", "stand_in", [])
BREAKS = "import sys; sys.exit('no such model')"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "stand_in.py"


@pytest.mark.slow
def test_ready_server_tells_where_and_what_it_costs(module: Path, tmp_path: Path) -> None:
    module.write_text(SERVES)
    with ServerProcess(STAND_IN, tmp_path / "log") as server:
        assert server.address == "127.0.0.1:5"
        assert server.ready_after_s >= 0.2
        # Two clocks, each of whole ticks.
        [first_s] = server.front_cpu_s()
        assert first_s >= 0.18
        assert server.cpu_s() - first_s >= 0.38
        # Both use all of it, but it is there once.
        assert SHARED_BYTES < server.resident_bytes() < 1.9 * SHARED_BYTES


@pytest.mark.slow
def test_server_that_does_not_start_says_why(module: Path, tmp_path: Path) -> None:
    module.write_text(BREAKS)
    with pytest.raises(SystemExit, match="no such model"):
        ServerProcess(STAND_IN, tmp_path / "log")


def test_repository_of_our_server_holds_the_artifact_alone(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    server = seqserve_server(tiny_artifact, tmp_path)
    repository = tmp_path / "models"
    assert server.name == "seqserve fp32"
    assert str(repository) in server.arguments
    assert [folder.name for folder in repository.iterdir()] == ["tiny"]
    assert Manifest.load(repository / "tiny" / "1").label == "tiny/1"
