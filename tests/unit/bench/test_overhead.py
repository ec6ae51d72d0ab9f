"""Throughput of rounds made by hand."""

from __future__ import annotations

import json

import pytest
from bench.drivers.seqserve import LoopRun
from bench.scenarios.overhead import ServerRun, tables, throughput


def test_figures() -> None:
    alone = LoopRun(tokens=1000, wall_s=1.0, cpu_s=2.0)
    served = ServerRun(
        tokens=1000,
        wall_s=2.0,
        cpu_s=2.5,
        front_cpu_s=0.7,
        event_loop_cpu_s=0.5,
        client_cpu_s=0.4,
        step_s=3.0,
        outside_s=0.3,
    )
    report = json.loads(json.dumps(throughput([(alone, served)] * 3, 100)))
    assert report["engine"]["tokens_per_s"] == 1000.0
    assert report["server"]["tokens_per_s"] == 500.0
    assert report["server"]["tokens_per_cpu_s"] == 400.0
    assert report["server"]["cpu_ms_per_request"] == pytest.approx(25.0)
    assert report["server"]["event_loop_cpu_ms_per_request"] == pytest.approx(5.0)
    assert report["server"]["step_share_outside_runtime"] == pytest.approx(0.1)
    # The process of the event loop, and a tenth of what the workers take.
    assert report["server"]["cpu_share_outside_runtime"] == pytest.approx((0.7 + 0.18) / 2.5)
    ratio = report["server_by_engine"]
    assert ratio["tokens_per_s"] == {"median": 0.5, "low": 0.5, "high": 0.5}
    assert ratio["tokens_per_cpu_s"]["median"] == pytest.approx(0.8)
    spread = {"median": 0.8, "low": 0.7, "high": 0.9}
    report |= {"model": "en-de/1", "precision": "int8", "plan": {"in_flight": 64}}
    start = dict.fromkeys(("ready_s", "ready_mb", "loaded_mb"), spread)
    speeds, starts = tables(report | {"start": start})
    assert speeds.rows[1] == ["through gRPC", "500", "400", "25.00", "1.25"]
    assert starts.rows[0][1] == "0.80 (0.70-0.90) s"
