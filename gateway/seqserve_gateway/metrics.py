"""The gateway's metrics, of one process or added up over several.

Names begin with ``seqserve_http``, so that a sum over the calls of the servers
(``seqserve_requests_total``) does not count the calls of a gateway a second time.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import prometheus_client as prometheus
from prometheus_client import Metric, ProcessCollector, multiprocess, values
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_BUCKETS = [5e-4 * 1.5**power for power in range(29)]
"""From 0.5 ms to 43 s, geometric like the buckets of the server."""


class Metrics:
    """The metrics of a process, and their sums over all processes."""

    def __init__(self, number: int = 0, folder: Path | None = None) -> None:
        """Registers all metrics, so that each name is there from the first scrape on.

        Args:
            number: Number of this process; its successor continues the counts.
            folder: Where all processes count; None if there is one.
        """
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = self._shown = prometheus.CollectorRegistry()
        if folder is None:
            ProcessCollector(registry=self.registry)
        else:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
            values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]
            self._shown = prometheus.CollectorRegistry()
            multiprocess.MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]
            self._shown.register(_Family())
        self._requests = prometheus.Counter(
            "seqserve_http_requests_total",
            "Requests by outcome, as the name of a gRPC status.",
            ["form", "path", "code"],
            registry=self.registry,
        )
        self._durations = prometheus.Histogram(
            "seqserve_http_request_duration_seconds",
            "Requests that got an answer, from their headers to its end.",
            ["form", "path"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.in_progress = prometheus.Gauge(
            "seqserve_http_requests_in_progress",
            "Requests whose body has arrived and that have not ended.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        self.connections = prometheus.Gauge(
            "seqserve_http_connections",
            "Open connections.",
            registry=self.registry,
            multiprocess_mode="livesum",
        )

    def ended(self, form: str, path: str, code: str, duration_s: float) -> None:
        """Counts a request that has ended; refusals come at once, so only answers are timed."""
        self._requests.labels(form, path, code).inc()
        if code == "OK":
            self._durations.labels(form, path).observe(duration_s)

    def publish(self) -> None:
        """Lets the other processes show what the functions of the gauges return here."""
        for gauge in (self.in_progress, self.connections):
            gauge.set(next(iter(gauge.collect())).samples[0].value)

    def text(self) -> bytes:
        """Returns the metrics of all processes."""
        self.publish()
        return prometheus.generate_latest(self._shown)


class _Family(Collector):
    """The metrics of a process, added up over the parent of this one and its children."""

    def collect(self) -> Iterable[Metric]:
        parent, children = os.getppid(), [str(os.getpid())]
        with suppress(OSError):
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text("ascii").split()
        metrics: dict[str, Metric] = {}
        for number in [parent, *map(int, children)]:
            for metric in ProcessCollector(pid=lambda: number, registry=None).collect():  # noqa: B023
                known = metrics.setdefault(metric.name, metric)
                if known is not metric:
                    known.samples = [_joined(*known.samples, *metric.samples)]
        return metrics.values()


def _joined(one: Sample, other: Sample) -> Sample:
    # The family is as old as its first process.
    join = min if one.name == "process_start_time_seconds" else sum
    return one._replace(value=join((one.value, other.value)))
