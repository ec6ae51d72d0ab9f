"""Rates, limits, and the report of a comparison, on answers made by hand."""

import json
import math

import pytest
from bench.requests import Run, Series, check_answers, highest_rate, steady_rate
from bench.scenarios import online

from seqserve.load import Answer


def answer(due_s: float, total_s: float) -> Answer:
    return Answer(due_s=due_s, sent_s=0.001, first_s=total_s / 2, total_s=total_s, tokens=3)


def failure(due_s: float) -> Answer:
    return Answer(due_s=due_s, sent_s=0.001, error="DEADLINE_EXCEEDED")


def test_failed_requests_took_for_ever() -> None:
    run = Run([answer(0.0, 0.01)] * 98 + [failure(0.0)] * 2, 1.0, 0.1)
    assert run.percentile("total_s", 0.9) == 0.01
    assert all(math.isinf(run.percentile(time, 0.99)) for time in ("total_s", "first_s"))
    assert run.percentile("sent_s", 0.5) == run.percentile("sent_s", 0.99) == 0.001


def test_steady_rate_leaves_out_beginning_and_end() -> None:
    answers = [answer(0.0, at_s) for at_s in (0.5, 0.9, 1.0, 2.0, 2.9, 3.0, 3.5)]
    assert steady_rate(answers, 3.0) == pytest.approx(3 / 2.0)


@pytest.mark.parametrize(
    ("waits_s", "limit_s", "expected"),
    [
        ([0.01, 0.02, 0.06], 0.03, (225.0, False)),
        ([0.01, 0.03, 0.01], 0.02, (150.0, False)),
        ([0.01, 0.02], 0.03, (200.0, True)),
        ([0.05, 0.02], 0.03, (0.0, False)),
        ([0.01, math.inf], 0.03, (100.0, True)),
    ],
    ids=["between points", "at the first break", "above all", "below all", "before a failure"],
)
def test_highest_rate(waits_s: list[float], limit_s: float, expected: tuple[float, bool]) -> None:
    points = [(100.0 * number, wait_s) for number, wait_s in enumerate(waits_s, 1)]
    highest = highest_rate(points, limit_s)
    assert (highest.per_s, highest.is_bound) == (pytest.approx(expected[0]), expected[1])


PLAN = online.Plan(shares=(0.5, 1.0), rounds=3, seconds=3.0)


def run_of(total_s: float, count: int, failures: int = 0) -> Run:
    served = Answer(due_s=1.5, sent_s=0.001, first_s=total_s, total_s=total_s, tokens=10)
    return Run([served] * count + [failure(1.5)] * failures, 3.0, 0.1)


def series_of(name: str, half: Run, full: Run) -> Series:
    series = Series(name)
    series.unloaded.extend([run_of(0.010, 10)] * PLAN.rounds)
    series.full.extend([run_of(0.5, 200)] * PLAN.rounds)
    series.points.update({0.5: [half] * PLAN.rounds, 1.0: [full] * PLAN.rounds})
    return series


def test_report_and_tables_of_a_comparison() -> None:
    series = [
        series_of("seqserve fp32 streamed", run_of(0.02, 150), run_of(0.06, 300)),
        series_of("CTranslate2 int8", run_of(0.03, 150), run_of(0.5, 200, 100)),
    ]
    report = json.loads(json.dumps(online.report_of("en-de/1", series, PLAN), allow_nan=False))
    assert report["capacity_per_s"] == pytest.approx(100.0)
    assert report["slo_ms"] == pytest.approx(40.0)
    ours, theirs = report["peers"]
    assert ours["highest_rate"] == {"per_s": pytest.approx(75.0), "is_bound": False}
    assert theirs["highest_rate"] == {"per_s": 50.0, "is_bound": True}
    first, last = theirs["points"]
    assert first["rate_per_s"] == pytest.approx(50.0)
    assert last["total_ms"] == {"p50": pytest.approx(500.0), "p99": None}
    assert last["errors"] == {"DEADLINE_EXCEEDED": 300}
    assert last["requests"] == 900
    assert last["generator_cpu_share"] == pytest.approx(0.1)
    latencies, rates = online.tables(report)
    assert ["CTranslate2 int8", "30 ms, 30 ms", "500 ms, —"] in list(latencies.rows)
    assert ["CTranslate2 int8, failed requests", "0", "300"] in list(latencies.rows)
    assert ["first token of a stream", "20 ms, 20 ms", "60 ms, 60 ms"] in list(latencies.rows)
    assert [row[3] for row in rates.rows] == ["75", "at least 50"]


def test_another_server_begins_each_round() -> None:
    orders = ["".join(online.in_turn("abc", number)) for number in range(4)]
    assert orders == ["abc", "bca", "cab", "abc"]


def test_a_closed_loop_in_which_a_call_failed_is_refused() -> None:
    check_answers([answer(0.0, 0.1)])
    with pytest.raises(SystemExit, match="calls failed: DEADLINE_EXCEEDED"):
        check_answers([answer(0.0, 0.1), failure(0.0)])
