"""Scrapes of engines: asked in parallel, summed by model."""

from __future__ import annotations

from concurrent.futures import Future

import pytest
from prometheus_client import CollectorRegistry

from seqserve_server.contract.messages import StatsReply
from seqserve_server.contract.stats import EngineStats
from seqserve_server.engine.stats_recorder import StatsRecorder
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector


def stats_of(rows: int) -> EngineStats:
    recorder = StatsRecorder()
    recorder.stepped(rows=rows, duration_s=0.004, outside_s=0.001)
    return recorder.snapshot()


class Busy:
    """Stands where a remote engine would be: its answer can be held back."""

    slots = 8
    cache_bytes = 1000

    def __init__(self, rows: int = 5) -> None:
        self.last_reply = StatsReply(3, rows, stats_of(rows), low_queue_depth=1)
        self.asked: list[Future[StatsReply]] = []
        self.answers = True

    def ask(self) -> Future[StatsReply]:
        self.asked.append(Future())
        if self.answers:
            self.asked[-1].set_result(self.last_reply)
        return self.asked[-1]


@pytest.fixture
def engines() -> EnginesCollector:
    return EnginesCollector()


def value(engines: EnginesCollector, name: str, **labels: str) -> float | None:
    registry = CollectorRegistry()
    registry.register(engines)
    return registry.get_sample_value(f"seqserve_{name}", labels)


def test_versions_of_a_model_are_one_series(engines: EnginesCollector) -> None:
    for model, rows in (("m", 5), ("m", 7), ("other", 1)):
        engines.add(model, Busy(rows))
    assert value(engines, "queue_depth", model="m", priority="normal") == 4
    assert value(engines, "queue_depth", model="m", priority="low") == 2
    assert value(engines, "slots_in_use", model="m") == 12
    assert value(engines, "slots", model="m") == 16
    assert value(engines, "cache_bytes", model="m") == 2000
    assert value(engines, "batch_rows_count", model="m") == 2
    assert value(engines, "batch_rows_sum", model="m") == 12
    assert value(engines, "step_seconds_total", model="m") == pytest.approx(0.008)
    assert value(engines, "slots", model="other") == 8


def test_adding_up_leaves_the_reports_as_they_are(engines: EnginesCollector) -> None:
    engines.add("m", Busy(5))
    engines.add("m", Busy(7))
    for _ in range(3):
        assert value(engines, "batch_rows_sum", model="m") == 12


def test_engine_that_does_not_answer_is_shown_as_it_was() -> None:
    engines = EnginesCollector(timeout_s=0.01)
    silent, other = Busy(5), Busy(7)
    silent.answers = False
    engines.add("m", silent)
    engines.add("m", other)
    assert value(engines, "slots_in_use", model="m") == 12


def test_all_are_asked_before_one_is_waited_for(engines: EnginesCollector) -> None:
    first, second = Busy(), Busy()
    first.answers = False

    class Telling(Busy):
        def ask(self) -> Future[StatsReply]:
            # Only now does the first one answer.
            first.asked[-1].set_result(first.last_reply)
            return super().ask()

    second = Telling()
    engines.add("m", first)
    engines.add("m", second)
    assert value(engines, "slots_in_use", model="m") == 10


def test_no_model_shows_no_sample(engines: EnginesCollector) -> None:
    assert [sample for family in engines.collect() for sample in family.samples] == []


def test_counters_do_not_fall_when_an_engine_is_taken_away(engines: EnginesCollector) -> None:
    first, second = Busy(5), Busy(7)
    engines.add("m", first)
    engines.add("m", second)
    engines.remove("m", first)
    assert value(engines, "batch_rows_sum", model="m") == 12
    assert value(engines, "slots", model="m") == 8
    assert value(engines, "slots_in_use", model="m") == 7
    engines.remove("m", second)
    assert value(engines, "batch_rows_sum", model="m") == 12
    assert value(engines, "queue_depth", model="m", priority="normal") == 0
    assert value(engines, "queue_depth", model="m", priority="low") == 0
    engines.add("m", Busy(1))
    assert value(engines, "batch_rows_sum", model="m") == 13
