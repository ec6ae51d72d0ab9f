from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.plot.pictures import labels

from seqserve.errors import OptionError
from seqserve_plot.bench import draw, read_report


def table(rows: int, **speeds: float) -> dict[str, Any]:
    peers = [{"name": name, "tokens_per_s": speed} for name, speed in speeds.items()]
    return {"rows": rows, "peers": peers}


def server(name: str, *p99_ms: float | None) -> dict[str, Any]:
    points = [
        {"rate_per_s": 100.0 * number, "total_ms": {"p50": 5.0, "p99": p99}}
        for number, p99 in enumerate(p99_ms, start=1)
    ]
    return {"name": name, "points": points}


OFFLINE = [
    table(1, **{"seqserve int8": 500.0, "CTranslate2 int8 2x1": 300.0}),
    # Another layout is the same engine.
    table(8, **{"seqserve int8": 900.0, "CTranslate2 int8 1x2": 800.0}),
]


def test_every_engine_is_in_each_part_once() -> None:
    # A rate at which too many failed has no time.
    online = {"slo_ms": 40.0, "peers": [server("seqserve int8", 9.0, None), server("torch", None)]}
    named = labels(draw({"sentences": OFFLINE, "marian": OFFLINE, "online": online}))
    # Speeds in two parts, and two quantiles.
    assert named.count("seqserve int8") == 4
    assert named.count("CTranslate2 int8") == 2
    # One of the two quantiles is there even for who is always too late.
    assert named.count("torch") == 1


def test_a_report_of_some_parts_is_drawn_alone() -> None:
    named = labels(draw({"marian": OFFLINE}))
    assert named == ["seqserve int8", "CTranslate2 int8"]


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"roofline": []})])
def test_what_is_no_report_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(content)
    with pytest.raises(OptionError, match=r"report\.json"):
        read_report(file)
