"""Collects the state of the files of certificates and tokens at each scrape.

A scrape also reloads files that have changed, so that a broken one is noticed before the next call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

ReadReloads: TypeAlias = Callable[[], Mapping[str, tuple[bool, float]]]
"""Returns by option whether its files are in use as they are, and when those in use were read."""
ReadExpiries: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns by option when its first certificate expires. Times are seconds since 1970."""


class FilesCollector(Collector):
    """Files that the server reloads, by the option that names them."""

    def __init__(self) -> None:
        """Shows nothing before the functions are set."""
        self.read_reloads: ReadReloads = dict
        self.read_expiries: ReadExpiries = dict

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Reads the state and yields all families."""
        successful = GaugeMetricFamily(
            "seqserve_reload_successful",
            "1 if the files of an option are in use as they are now, 0 if they are broken.",
            labels=["option"],
        )
        success_s = GaugeMetricFamily(
            "seqserve_reload_success_timestamp_seconds",
            "Time at which the files in use were read.",
            labels=["option"],
        )
        expiry_s = GaugeMetricFamily(
            "seqserve_certificate_expiry_timestamp_seconds",
            "Time at which the first certificate of a file expires.",
            labels=["option"],
        )
        for option, (succeeded, time_s) in self.read_reloads().items():
            successful.add_metric([option], succeeded)
            success_s.add_metric([option], time_s)
        for option, time_s in self.read_expiries().items():
            expiry_s.add_metric([option], time_s)
        yield from (successful, success_s, expiry_s)
