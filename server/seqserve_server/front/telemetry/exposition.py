"""How metrics are written for whoever scrapes: the text of Prometheus, or OpenMetrics.

Only OpenMetrics has a place for exemplars. A scraper asks for it by its ``Accept`` header.
Source: OpenMetrics 1.0, https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Metric, exposition
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

_OPENMETRICS = "application/openmetrics-text"
_TEXT = "text/plain; version=0.0.4; charset=utf-8"


def exposed(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """Writes what a registry holds now.

    Args:
        registry: What there is to show.
        accept: Media types that are welcome.

    Returns:
        The text and its media type.
    """
    if _OPENMETRICS in accept:
        text = openmetrics.generate_latest(_Distinct(registry))  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return exposition.generate_latest(registry), _TEXT


class _Distinct(Collector):
    """Families of names of their own.

    OpenMetrics calls a counter by its name without ``_total``, so one beside a histogram of that
    name would be its double. Such a counter is shown as a number of no known kind; its series stays
    what it is.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        families = list(self._registry.collect())
        histograms = {family.name for family in families if family.type == "histogram"}
        for family in families:
            if family.type == "counter" and family.name in histograms:
                plain = Metric(f"{family.name}_total", family.documentation, "unknown")
                plain.samples = family.samples
                yield plain
            else:
                yield family
