"""Prometheus metrics of the gateway.

Names begin with ``seqserve_http``, so that a sum over the calls of the servers
(``seqserve_requests_total``) does not count those of a gateway a second time. The values of a label
are few: no text, ids or addresses.
"""

from __future__ import annotations

import prometheus_client as prometheus
from starlette.requests import Request
from starlette.responses import Response

_BUCKETS = [5e-4 * 1.5**power for power in range(29)]
"""From 0.5 ms to 43 s, geometric as those of the server."""


class Metrics:
    """Requests that have ended and those under way, by form and path."""

    def __init__(self) -> None:
        """Registers all metrics, so that each name is there from the first scrape on."""
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=self.registry)
        self._requests = prometheus.Counter(
            "seqserve_http_requests_total",
            "Requests by outcome: the name of the gRPC status that their answer stands for.",
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
            "Requests whose body has arrived and whose answer has not ended.",
            registry=self.registry,
        )
        self.connections = prometheus.Gauge(
            "seqserve_http_connections", "Open connections.", registry=self.registry
        )

    def ended(self, form: str, path: str, code: str, duration_s: float) -> None:
        """Counts a request that has ended; refusals come at once, so only answers are timed."""
        self._requests.labels(form, path, code).inc()
        if code == "OK":
            self._durations.labels(form, path).observe(duration_s)

    async def scrape(self, request: Request) -> Response:
        """Answers ``/metrics`` in Prometheus' text format."""
        text = prometheus.generate_latest(self.registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
