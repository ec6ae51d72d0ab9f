from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bench.plots import draw

pytestmark = pytest.mark.slow


def table(rows: int, **speeds: float) -> dict[str, Any]:
    peers = [{"name": name, "tokens_per_s": speed} for name, speed in speeds.items()]
    return {"rows": rows, "peers": peers}


def server(name: str, *p99_ms: float | None) -> dict[str, Any]:
    points = [
        {"rate_per_s": 100.0 * number, "total_ms": {"p50": 5.0, "p99": p99}}
        for number, p99 in enumerate(p99_ms, start=1)
    ]
    return {"name": name, "points": points}


def test_every_engine_is_in_the_pictures_once(tmp_path: Path) -> None:
    offline = [
        table(1, **{"seqserve int8": 500.0, "CTranslate2 int8 2x1": 300.0}),
        # Another layout is the same engine.
        table(8, **{"seqserve int8": 900.0, "CTranslate2 int8 1x2": 800.0}),
    ]
    # A rate at which too many failed has no time.
    online = {"slo_ms": 40.0, "peers": [server("seqserve int8", 9.0, None), server("torch", None)]}
    report = {"sentences": offline, "marian": offline, "online": online}
    files = draw(report, tmp_path / "plots")
    assert [file.name for file in files] == ["offline.svg", "online.svg"]
    speeds, waits = (file.read_text(encoding="utf-8") for file in files)
    assert speeds.count("<!-- seqserve int8 -->") == speeds.count("<!-- CTranslate2 int8 -->") == 2
    assert waits.count("<!-- seqserve int8 -->") == 2
    # One of the two quantiles is there even for who is always too late.
    assert waits.count("<!-- torch -->") == 1
