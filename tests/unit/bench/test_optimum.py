"""The pipes to Optimum's environment; a stand-in answers, which reverses every source."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from bench.optimum import OptimumPeer

ANSWER = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    rows = [row[::-1] for row in json.loads(line)]
    print(json.dumps({"rows": rows, "seconds": float(len(rows))}), flush=True)
"""


def interpreter(folder: Path, program: str) -> Path:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{program}")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_rows_come_back_in_the_order_of_the_sources(tmp_path: Path, workers: int) -> None:
    peer = OptimumPeer(interpreter(tmp_path, ANSWER), tmp_path, (workers, 1), rows=2, length=4)
    sources = [[1, 2, 3], [4], [5, 6], [7, 8, 9, 10]]
    try:
        for _ in range(2):
            assert peer.decode(sources) == [row[::-1] for row in sources]
        assert peer.seconds == -(-len(sources) // workers)
    finally:
        peer.close()


def test_a_worker_that_cannot_start_is_told_of(tmp_path: Path) -> None:
    broken = interpreter(tmp_path, "raise SystemExit(3)")
    with pytest.raises(RuntimeError, match="status 3"):
        OptimumPeer(broken, tmp_path, (2, 1), rows=2, length=4)
