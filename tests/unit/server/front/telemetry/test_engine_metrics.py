"""Scrapes of engines: asked in parallel, shown by version."""

from __future__ import annotations

import os
from concurrent.futures import Future

import pytest
from prometheus_client import CollectorRegistry

from seqserve_server.contract.messages import Ready, StatsReply
from seqserve_server.contract.stats import EngineStats
from seqserve_server.engine.observer import StatsRecorder
from seqserve_server.front.engine_client.engine import EngineStatus
from seqserve_server.front.telemetry.call_metrics import VersionLabels
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector

FIRST, SECOND, OTHER = (VersionLabels(*one) for one in (("m", "1"), ("m", "2"), ("other", "1")))


def stats_of(rows: int) -> EngineStats:
    recorder = StatsRecorder()
    recorder.stepped(rows=rows, duration_s=0.004, outside_s=0.001)
    return recorder.snapshot()


class Busy:
    """Stands where a remote engine would be: its answer can be held back."""

    capacity = Ready(slots=8, max_rows=8, cache_bytes=1000)

    def __init__(self, rows: int = 5, pids: tuple[int, ...] = ()) -> None:
        self.status = EngineStatus(is_up=True, is_ready=True, last_error="", restarts=1, pids=pids)
        self.last_reply = StatsReply(3, rows, stats_of(rows), low_queue_depth=1)
        self.requested: list[Future[StatsReply]] = []
        self.answers = True

    def request_stats(self) -> Future[StatsReply]:
        self.requested.append(Future())
        if self.answers:
            self.requested[-1].set_result(self.last_reply)
        return self.requested[-1]


@pytest.fixture
def engines() -> EnginesCollector:
    return EnginesCollector()


def value(
    engines: EnginesCollector, name: str, version: VersionLabels, **labels: str
) -> float | None:
    registry = CollectorRegistry()
    registry.register(engines)
    return registry.get_sample_value(f"seqserve_{name}", version._asdict() | labels)


def test_each_version_has_its_own_series(engines: EnginesCollector) -> None:
    for version, rows in ((FIRST, 5), (SECOND, 7), (OTHER, 1)):
        engines.add(version, Busy(rows))
    assert value(engines, "queue_depth", FIRST, priority="normal") == 2
    assert value(engines, "queue_depth", FIRST, priority="low") == 1
    assert value(engines, "slots_in_use", FIRST) == 5
    assert value(engines, "slots_in_use", SECOND) == 7
    assert value(engines, "slots", SECOND) == 8
    assert value(engines, "cache_bytes", SECOND) == 1000
    assert value(engines, "batch_rows_count", OTHER) == 1
    assert value(engines, "batch_rows_sum", OTHER) == 1
    assert value(engines, "step_seconds_total", OTHER) == pytest.approx(0.004)


def test_memory_of_gpus_is_shown_where_there_are_any(engines: EnginesCollector) -> None:
    first, second = Busy(), Busy()
    replies = [
        second.last_reply._replace(gpu_used_bytes=30, gpu_total_bytes=80, gpu_unrecorded_steps=1)
    ] * 2
    second.last_reply = StatsReply.total(replies)
    engines.add(FIRST, first)
    engines.add(SECOND, second)
    assert value(engines, "gpu_memory_used_bytes", FIRST) is None
    assert value(engines, "gpu_memory_used_bytes", SECOND) == 60
    assert value(engines, "gpu_memory_bytes", SECOND) == 160
    assert value(engines, "gpu_unrecorded_steps", SECOND) == 2


def test_scrapes_leave_the_reports_as_they_are(engines: EnginesCollector) -> None:
    engines.add(FIRST, Busy(5))
    engines.remove(FIRST)
    engines.add(FIRST, Busy(7))
    for _ in range(3):
        assert value(engines, "batch_rows_sum", FIRST) == 12


def test_engine_that_does_not_answer_is_shown_as_it_was() -> None:
    engines = EnginesCollector(timeout_s=0.01)
    silent = Busy(5)
    silent.answers = False
    engines.add(FIRST, silent)
    engines.add(SECOND, Busy(7))
    assert value(engines, "slots_in_use", FIRST) == 5
    assert value(engines, "slots_in_use", SECOND) == 7


def test_all_are_asked_before_one_is_waited_for(engines: EnginesCollector) -> None:
    first = Busy()
    first.answers = False

    class Telling(Busy):
        def request_stats(self) -> Future[StatsReply]:
            # Only now does the first one answer.
            first.requested[-1].set_result(first.last_reply)
            return super().request_stats()

    engines.add(FIRST, first)
    engines.add(SECOND, Telling())
    assert value(engines, "slots_in_use", SECOND) == 5


def test_no_model_shows_no_sample(engines: EnginesCollector) -> None:
    assert [sample for family in engines.collect() for sample in family.samples] == []


def test_counters_do_not_fall_before_they_end(engines: EnginesCollector) -> None:
    engines.add(FIRST, Busy(5))
    engines.remove(FIRST)
    assert value(engines, "batch_rows_sum", FIRST) == 5
    assert value(engines, "engine_restarts_total", FIRST) == 1
    assert value(engines, "slots", FIRST) is None
    assert value(engines, "queue_depth", FIRST, priority="normal") is None
    engines.add(FIRST, Busy(1))
    assert value(engines, "batch_rows_sum", FIRST) == 6
    assert value(engines, "engine_restarts_total", FIRST) == 2
    engines.remove(FIRST)
    engines.forget(FIRST)
    assert value(engines, "batch_rows_sum", FIRST) is None


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")
def test_memory_and_cpu_time_are_those_of_the_process(engines: EnginesCollector) -> None:
    busy, down = Busy(pids=(os.getpid(),)), Busy()
    engines.add(FIRST, busy)
    engines.add(SECOND, down)
    memory = value(engines, "engine_resident_memory_bytes", FIRST)
    assert memory is not None and memory > 1e6
    cpu_s = value(engines, "engine_cpu_seconds_total", FIRST)
    assert cpu_s is not None and 0.0 < cpu_s <= sum(os.times()[:2]) + 1.0
    assert value(engines, "engine_resident_memory_bytes", SECOND) is None
    assert value(engines, "engine_cpu_seconds_total", SECOND) is None
