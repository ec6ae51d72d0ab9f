"""Formats metrics for a scraper, as Prometheus text or as OpenMetrics.

Only OpenMetrics has exemplars. A scraper asks for it in its ``Accept`` header.
Source: OpenMetrics 1.0, https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, exposition
from prometheus_client.openmetrics import exposition as openmetrics

_OPENMETRICS = "application/openmetrics-text"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Formats the current values for a scraper; returns the text and its media type."""
    if _OPENMETRICS in accept:
        text = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest(registry), _TEXT
