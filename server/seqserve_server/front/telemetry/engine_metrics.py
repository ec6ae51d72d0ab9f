"""Collects the metrics of all engines at each scrape, by model and version."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import NamedTuple

from prometheus_client import ProcessCollector, core
from prometheus_client.registry import Collector

from seqserve_server.contract.request import Priority
from seqserve_server.contract.stats import COUNTERS, HISTOGRAMS, EngineStats, StatsReply
from seqserve_server.front.engine_client.engine import ServingEngine
from seqserve_server.front.telemetry.call_metrics import NAMES, VersionLabels, counter, gauge

_TIMEOUT_S = 2.0


@dataclass(slots=True)
class _Report:
    stats: EngineStats = field(default_factory=EngineStats)
    """Of all its engines: those that were removed count too, so that counters do not fall."""
    restarts: int = 0
    engine: ServingEngine | None = None
    """None once the version is unloaded; then only its counters are shown."""
    reply: StatsReply | None = None


_Reports = dict[VersionLabels, _Report]


class EnginesCollector(Collector):
    """Asks all engines for their stats at each scrape."""

    def __init__(self, timeout_s: float = _TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._past: _Reports = {}
        self._lock = Lock()

    def add(self, version: VersionLabels, engine: ServingEngine) -> None:
        """Adds the engine of a version."""
        with self._lock:
            self._past.setdefault(version, _Report()).engine = engine

    def remove(self, version: VersionLabels) -> None:
        """Removes the engine of a version; its counters stay until they are forgotten."""
        with self._lock:
            past = self._past[version]
            assert past.engine is not None
            past.stats += past.engine.last_reply.stats
            past.restarts += past.engine.status.restarts
            past.engine = None

    def forget(self, version: VersionLabels) -> None:
        """Ends the series of a version that was removed."""
        with self._lock:
            self._past.pop(version, None)

    def collect(self) -> Iterator[core.Metric]:
        """Yields every family with its current values."""
        reports = self._ask()
        yield from _gauges(reports)
        processes = (
            (version, report.restarts, report.engine.status.pids if report.engine else ())
            for version, report in reports.items()
        )
        yield from process_families("engine", processes, NAMES)
        yield from _counters(reports)
        yield from _labelled_counters(reports)
        yield from _histograms(reports)

    def _ask(self) -> _Reports:
        # All questions are sent first, so that the engines answer in parallel.
        asked: list[Future[StatsReply]] = []
        reports: _Reports = {}
        with self._lock:
            for version, past in sorted(self._past.items(), key=lambda each: each[0]):
                report = reports[version] = replace(past)
                if report.engine is not None:
                    report.restarts += report.engine.status.restarts
                    asked += report.engine.request_stats()
        wait(asked, self._timeout_s)
        for report in reports.values():
            if report.engine is not None:
                report.reply = report.engine.last_reply
                report.stats += report.reply.stats
        return reports


def _gauges(reports: _Reports) -> Iterator[core.Metric]:
    text = "Requests that wait, for a slot or for the scorer."
    waiting = gauge("queue_depth", text, [*NAMES, "priority"])
    in_use = gauge("slots_in_use", "Rows that run.")
    slots = gauge("slots", "Rows that may run at once.")
    cache_bytes = gauge("cache_bytes", "Bytes of keys, values and recurrent states.")
    gpu_used = gauge("gpu_memory_used_bytes", "Memory of the GPUs in use, by any process.")
    gpu_total = gauge("gpu_memory_bytes", "Memory of the GPUs.")
    unrecorded = gauge("gpu_unrecorded_steps", "Sizes of steps that run without a CUDA graph.")
    for version, report in reports.items():
        engine, reply = report.engine, report.reply
        if engine is None or reply is None:
            continue
        normal = reply.queue_depth - reply.low_queue_depth
        waiting.add_metric([*version, Priority.NORMAL.value], normal)
        waiting.add_metric([*version, Priority.LOW.value], reply.low_queue_depth)
        in_use.add_metric(version, reply.slots_in_use)
        slots.add_metric(version, engine.capacity.slots)
        cache_bytes.add_metric(version, engine.capacity.cache_bytes)
        if reply.gpu_total_bytes:
            gpu_used.add_metric(version, reply.gpu_used_bytes)
            gpu_total.add_metric(version, reply.gpu_total_bytes)
            unrecorded.add_metric(version, reply.gpu_unrecorded_steps)
    yield from (waiting, in_use, slots, cache_bytes, gpu_used, gpu_total, unrecorded)


def process_families(
    kind: str, processes: Iterable[tuple[Sequence[str], int, Sequence[int]]], names: Sequence[str]
) -> Iterator[core.Metric]:
    """Measures processes of a kind: the values of their labels, their restarts and their ids."""
    text = f"the {kind} processes."
    restarts = counter(f"{kind}_restarts", f"Restarts of {text}", names)
    memory = gauge(f"{kind}_resident_memory_bytes", f"Resident memory of {text}", names)
    cpu = counter(f"{kind}_cpu_seconds", f"CPU time of {text}", names)
    for labels, count, pids in processes:
        restarts.add_metric(labels, count)
        if usage := usage_of(pids):
            memory.add_metric(labels, usage.resident_bytes)
            cpu.add_metric(labels, usage.cpu_s)
    yield from (restarts, memory, cpu)


def _counters(reports: _Reports) -> Iterator[core.Metric]:
    for name, text in COUNTERS.items():
        family: core.CounterMetricFamily | core.UnknownMetricFamily
        if name in HISTOGRAMS:
            # OpenMetrics names a counter without its suffix, so both families would have one name.
            family = core.UnknownMetricFamily(f"seqserve_{name}_total", text, labels=NAMES)
        else:
            family = counter(name, text)
        for version, report in reports.items():
            family.add_metric(version, report.stats.totals[name])
        yield family


def _labelled_counters(reports: _Reports) -> Iterator[core.CounterMetricFamily]:
    late = counter("deadline_exceeded", "Requests whose deadline passed.", [*NAMES, "where"])
    stops = counter("stop", "Answers by why they stopped.", [*NAMES, "reason"])
    for version, report in reports.items():
        for where, count in report.stats.deadlines.items():
            late.add_metric([*version, where], count)
        for reason, count in report.stats.stops.items():
            stops.add_metric([*version, reason], count)
    yield late
    yield stops


def _histograms(reports: _Reports) -> Iterator[core.HistogramMetricFamily]:
    for name, (text, _) in HISTOGRAMS.items():
        family = core.HistogramMetricFamily(f"seqserve_{name}", text, labels=NAMES)
        for version, report in reports.items():
            buckets, total = report.stats.histograms[name].buckets()
            family.add_metric(version, buckets, total)
        yield family


class ProcessUsage(NamedTuple):
    """Resources that some processes use together."""

    resident_bytes: float
    """Physical memory."""
    cpu_s: float
    """User and system time since they started, in seconds."""


def usage_of(pids: Iterable[int]) -> ProcessUsage | None:
    """Adds up the usage of processes; None if all have ended, or the system has no ``/proc``."""
    usages = [usage for pid in pids if (usage := _usage(pid))]
    if not usages:
        return None
    resident_bytes, cpu_s = zip(*usages, strict=True)
    return ProcessUsage(sum(resident_bytes), sum(cpu_s))


def _usage(pid: int) -> ProcessUsage | None:
    families = ProcessCollector(pid=lambda: pid, registry=None).collect()
    values = {family.name: family.samples[0].value for family in families}
    try:
        return ProcessUsage(values["process_resident_memory_bytes"], values["process_cpu_seconds"])
    except KeyError:
        return None
