"""What is made of the answers: a report that is JSON, and a table."""

from __future__ import annotations

import json

import pytest
from bench.latency import Answer
from bench.load import Caller
from bench.online import Plan, in_turn, print_table, report_of
from bench.series import Run, Series

PLAN = Plan(shares=(0.5, 1.0), rounds=3, seconds=3.0)


def run_of(total_s: float, count: int, failures: int = 0) -> Run:
    served = [
        Answer(due_s=1.5, sent_s=0.001, first_s=total_s, total_s=total_s, tokens=10)
        for _ in range(count)
    ]
    failed = [Answer(due_s=1.5, sent_s=0.001, error="DEADLINE_EXCEEDED") for _ in range(failures)]
    return Run([*served, *failed], 3.0, 0.1)


def series_of(name: str, unloaded_s: float, half: Run, whole: Run) -> Series:
    series = Series(name, Caller("nowhere"))
    series.unloaded.extend([run_of(unloaded_s, 10)] * PLAN.rounds)
    series.full.extend([run_of(0.5, 200)] * PLAN.rounds)
    series.points.update({0.5: [half] * PLAN.rounds, 1.0: [whole] * PLAN.rounds})
    return series


@pytest.fixture
def series() -> list[Series]:
    return [
        series_of("seqserve fp32", 0.010, run_of(0.02, 150), run_of(0.06, 300)),
        series_of("CTranslate2 int8", 0.010, run_of(0.03, 150), run_of(0.5, 200, 100)),
    ]


def test_report(series: list[Series]) -> None:
    report = json.loads(json.dumps(report_of("en-de/1", series, PLAN), allow_nan=False))
    assert report["capacity_per_s"] == pytest.approx(100.0)
    assert report["slo_ms"] == pytest.approx(40.0)
    ours, theirs = report["peers"]
    assert ours["highest_rate"] == {"per_s": pytest.approx(75.0), "is_bound": False}
    assert theirs["highest_rate"] == {"per_s": 50.0, "is_bound": True}
    assert ours["tokens_per_answer"] == 10
    first, last = theirs["points"]
    assert (first["rate_per_s"], first["within_slo"]) == (pytest.approx(50.0), 1.0)
    assert first["goodput_per_s"] == pytest.approx(50.0)
    assert last["total_ms"] == {"p50": pytest.approx(500.0), "p90": None, "p99": None}
    assert last["errors"] == {"DEADLINE_EXCEEDED": 300}
    assert last["requests"] == 900
    assert last["within_slo"] == last["goodput_per_s"] == 0.0
    assert last["generator_cpu_share"] == pytest.approx(0.1)


def test_table(series: list[Series], capsys: pytest.CaptureFixture[str]) -> None:
    print_table(report_of("en-de/1", series, PLAN))
    text = capsys.readouterr().out
    assert "300 DEADLINE_EXCEEDED" in text
    assert "at least 50/s" in text and " 75/s" in text


def test_each_round_another_begins() -> None:
    names = ["a", "b", "c"]
    series = [Series(name, Caller("nowhere")) for name in names]
    first = [[one.name for one in in_turn(series, round_)] for round_ in range(4)]
    assert first == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
