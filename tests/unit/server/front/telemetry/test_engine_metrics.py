import os
import subprocess
import sys
from concurrent.futures import Future
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector

from seqserve_server.contract.stats import EngineStats, Ready, StatsReply
from seqserve_server.engine.observer import StatsRecorder
from seqserve_server.front.engine_client.engine import EngineStatus
from seqserve_server.front.telemetry import engine_metrics as module
from seqserve_server.front.telemetry.call_metrics import VersionLabels
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector, usage_of

FIRST, SECOND, OTHER = (VersionLabels(*one) for one in (("m", "1"), ("m", "2"), ("other", "1")))


def stats_of(rows: int) -> EngineStats:
    recorder = StatsRecorder()
    recorder.stepped(rows=rows, duration_s=0.004, outside_s=0.001)
    return recorder.snapshot()


class Busy:
    """Stands where a remote engine would be: its answer can be held back."""

    capacity = Ready(slots=8, max_rows=8, cache_bytes=1000)

    def __init__(self, rows: int = 5, pids: tuple[int, ...] = (), **more: int) -> None:
        self.status = EngineStatus(is_up=True, is_ready=True, last_error="", restarts=1, pids=pids)
        self.last_reply = StatsReply(3, rows, stats_of(rows), low_queue_depth=1, **more)
        self.requested: list[Future[StatsReply]] = []
        self.answers = True

    def request_stats(self) -> list[Future[StatsReply]]:
        self.requested.append(Future())
        if self.answers:
            self.requested[-1].set_result(self.last_reply)
        return self.requested[-1:]


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
    assert [value(engines, "slots_in_use", each) for each in (FIRST, SECOND)] == [5, 7]
    assert [value(engines, name, SECOND) for name in ("slots", "cache_bytes")] == [8, 1000]
    rows = [value(engines, f"batch_rows_{name}", OTHER) for name in ("count", "sum")]
    assert rows == [1, 1]
    assert value(engines, "step_seconds_total", OTHER) == pytest.approx(0.004)


def test_memory_of_gpus_is_shown_where_there_are_any(engines: EnginesCollector) -> None:
    second = Busy(gpu_used_bytes=30, gpu_total_bytes=80, gpu_unrecorded_steps=1)
    second.last_reply = StatsReply.total([second.last_reply] * 2)
    engines.add(FIRST, Busy())
    engines.add(SECOND, second)
    assert value(engines, "gpu_memory_used_bytes", FIRST) is None
    names = ("gpu_memory_used_bytes", "gpu_memory_bytes", "gpu_unrecorded_steps")
    assert [value(engines, name, SECOND) for name in names] == [60, 160, 2]


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
        def request_stats(self) -> list[Future[StatsReply]]:
            # Only now does the first one answer.
            first.requested[-1].set_result(first.last_reply)
            return super().request_stats()

    engines.add(FIRST, first)
    engines.add(SECOND, Telling())
    assert value(engines, "slots_in_use", SECOND) == 5


def test_no_model_shows_no_sample(engines: EnginesCollector) -> None:
    assert not any(family.samples for family in engines.collect())


reads_proc = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="reads /proc")


@reads_proc
def test_memory_and_cpu_time_are_those_of_the_process(engines: EnginesCollector) -> None:
    engines.add(FIRST, Busy(pids=(os.getpid(),)))
    engines.add(SECOND, Busy())
    memory = value(engines, "engine_resident_memory_bytes", FIRST)
    cpu_s = value(engines, "engine_cpu_seconds_total", FIRST)
    assert memory is not None and memory > 1e6
    assert cpu_s is not None and 0.0 < cpu_s <= sum(os.times()[:2]) + 1.0
    for name in ("engine_resident_memory_bytes", "engine_cpu_seconds_total"):
        assert value(engines, name, SECOND) is None


@reads_proc
def test_process_that_computes_uses_memory_and_time() -> None:
    code = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        try:
            while True:
                usage = usage_of([process.pid])
                assert usage is not None
                if usage.cpu_s >= 0.05:
                    break
            assert usage.resident_bytes > 1e6
        finally:
            process.kill()
    assert usage_of([process.pid]) is None
    assert usage_of([os.getpid(), process.pid]) is not None


@reads_proc
def test_several_processes_use_what_each_of_them_uses() -> None:
    one, both = usage_of([os.getpid()]), usage_of([os.getpid(), os.getpid()])
    assert one is not None and both is not None
    assert both.resident_bytes > 1.5 * one.resident_bytes
    assert both.cpu_s >= 2 * one.cpu_s


def test_no_process_and_no_proc_tell_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert usage_of([]) is None
    monkeypatch.setattr(module, "ProcessCollector", partial(ProcessCollector, proc="/nowhere"))
    assert usage_of([os.getpid()]) is None
