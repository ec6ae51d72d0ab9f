"""Prometheus metrics of a server: calls, models and engines.

Names and labels are part of the API. The values of a label are few and bounded: no text, ids or
addresses; only an exemplar has the id of a call. Histogram buckets are geometric, so that quantiles
have the same relative precision at 1 ms as at 10 s.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import prometheus_client as prometheus
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from seqserve_server.contract.stats import CacheCounts
from seqserve_server.front.engine_client.engine import ServingEngine
from seqserve_server.front.telemetry.call_metrics import (
    NAMES,
    CacheMetrics,
    CallMetrics,
    Calls,
    Kind,
    VersionLabels,
    gauge,
)
from seqserve_server.front.telemetry.call_record import rejection_of
from seqserve_server.front.telemetry.engine_metrics import EnginesCollector, process_families

# By then a scraper has seen the last counts of a version that was unloaded.
_LAST_SCRAPE_S = 120.0

ReadVersions: TypeAlias = Callable[[], list[tuple[str, int, str]]]
"""Returns name, number and state of every version; called from any thread."""
ReadReloads: TypeAlias = Callable[[], Mapping[str, tuple[bool, float]]]
"""Returns by option whether its files are in use as they are, and when those in use were read."""
ReadExpiries: TypeAlias = Callable[[], Mapping[str, float]]
"""Returns by option when its first certificate expires. Times are seconds since 1970."""


class _Families(Collector):
    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        return self._read()


class Metrics:
    """All metrics of a server."""

    def __init__(self) -> None:
        # They would add a series with the start time to each counter, which no rule of ours reads.
        prometheus.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = prometheus.CollectorRegistry()
        self.calls = prometheus.CollectorRegistry()
        """Counters of a front; part of :attr:`registry`."""
        self._read_calls: Callable[[], Iterable[Metric]] = self.calls.collect
        prometheus.ProcessCollector(registry=self.registry)
        prometheus.PlatformCollector(registry=self.registry)
        self._engines = EnginesCollector()
        self._calls = CallMetrics()
        self._cache = CacheMetrics()
        # Versions that have series: a call that outlives its version must not begin new ones.
        self._shown: set[VersionLabels] = set()
        self._loaded: set[VersionLabels] = set()
        self.read_versions: ReadVersions = list
        """Reads the states of all versions at each scrape."""
        self._read_reloads: ReadReloads = dict
        self._read_expiries: ReadExpiries = dict
        for collector in (self._calls, self._cache, _Families(self._file_families)):
            self.calls.register(collector)
        versions = _Families(self._version_families)
        for each in (self._engines, versions, _Families(lambda: self._read_calls())):
            self.registry.register(each)
        of_calls = partial(prometheus.Counter, namespace="seqserve", registry=self.calls)
        text = "Requests refused before they could wait."
        self._rejected = of_calls("rejected", text, ["reason", "model"])
        text = "Answers whose numbers differ from their source."
        self._numbers_differ = of_calls("numbers_differ", text, ["model"])
        of_models: dict[str, Any] = {"namespace": "seqserve", "registry": self.registry}
        text = "Models loaded, by outcome."
        self._model_loads = prometheus.Counter("model_loads", text, ["result"], **of_models)
        for result in ("success", "failure"):
            self._model_loads.labels(result)
        text = "Time to load a model."
        self._load_seconds = prometheus.Summary("model_load_seconds", text, **of_models)
        text = "Models unloaded to make room for others."
        self.evictions = prometheus.Counter("model_evictions", text, **of_models)
        labels = ["model", "version", "precision", "provider"]
        self._model_info = prometheus.Gauge(
            "model_info", "Models that are loaded.", labels, **of_models
        )

    def show_answers(
        self, count_bytes: Callable[[], int], count_waiting: Callable[[], int]
    ) -> None:
        """Sets the functions that count, at a scrape, bytes of answers and waiting calls."""
        for name, text, count in (
            ("answer_bytes", "Reserved for answers that are not taken yet.", count_bytes),
            ("answers_waiting", "Calls that wait for memory for their answer.", count_waiting),
        ):
            gauge = prometheus.Gauge(f"seqserve_{name}", text, registry=self.calls)
            gauge.set_function(count)

    def show_fronts(
        self,
        read_calls: Callable[[], Iterable[Metric]],
        read_processes: Callable[[], Iterable[tuple[Sequence[str], int, Sequence[int]]]],
    ) -> None:
        """Sets the functions that read what all fronts have counted, and their processes."""
        self._read_calls = read_calls
        processes = _Families(lambda: process_families("front", read_processes(), ["front"]))
        self.registry.register(processes)

    def show_calls_never_accepted(self, count: Callable[[], int]) -> None:
        """Sets the function that counts the calls that reached gRPC, but not the server."""
        self.calls.register(_LostCalls(count))

    def show_files(self, reloads: ReadReloads, expiries: ReadExpiries) -> None:
        """Sets the functions that read the state of certificates, tokens and glossaries
        at each scrape."""
        self._read_reloads, self._read_expiries = reloads, expiries

    def show_loaded_bytes(self, count: Callable[[], int]) -> None:
        """Sets the function that counts the memory of the versions that calls have loaded."""
        text = "Memory that loaded models take while idle, which --max-loaded-mb bounds."
        prometheus.Gauge("seqserve_loaded_bytes", text, registry=self.registry).set_function(count)

    def model_loaded(
        self,
        model: str,
        version: int,
        precision: str,
        provider: str,
        engine: ServingEngine,
        seconds: float,
    ) -> None:
        """Counts a version that is ready after so many seconds, and begins its series."""
        self.show_model(model, version)
        labels = VersionLabels.of(model, version)
        self._engines.add(labels, engine)
        self._model_info.labels(*labels, precision, provider).set(1)
        self._model_loads.labels("success").inc()
        self._load_seconds.observe(seconds)

    def show_model(self, model: str, version: int) -> None:
        """Lets calls have series of a version."""
        labels = VersionLabels.of(model, version)
        self._loaded.add(labels)
        self._shown.add(labels)

    def forget_model_later(self, model: str, version: int) -> None:
        """Ends the series of a version after the next scrapes, unless it is loaded again."""
        self._loaded.discard(VersionLabels.of(model, version))
        asyncio.get_running_loop().call_later(_LAST_SCRAPE_S, self.forget_model, model, version)

    def model_unloaded(self, model: str, version: int, precision: str, provider: str) -> None:
        """Removes the engine of a version; its counters stay until :meth:`forget_model`."""
        labels = VersionLabels.of(model, version)
        self._engines.remove(labels)
        self._model_info.remove(*labels, precision, provider)
        self._loaded.discard(labels)

    def forget_model(self, model: str, version: int) -> None:
        """Ends the series of a version, unless it was loaded again."""
        labels = VersionLabels.of(model, version)
        if labels not in self._loaded:
            self._shown.discard(labels)
            self._engines.forget(labels)
            self._calls.forget(labels)
            self._cache.forget(labels)

    def model_failed(self) -> None:
        """Counts a version that could not be loaded."""
        self._model_loads.labels("failure").inc()

    def called(
        self,
        model: str,
        version: int,
        method: str,
        code: str,
        duration_s: float,
        exemplar: dict[str, str],
    ) -> None:
        """Counts a finished call; the exemplar is the id of its trace or log line."""
        labels = VersionLabels.of(model, version)
        if labels not in self._shown:
            labels = VersionLabels.of(model, 0)
        self._calls.observe(labels, Kind(method, code), duration_s, exemplar)

    def numbers_differ(self, model: str, count: float) -> None:
        """Counts a call's answers whose numbers differ from their sources'."""
        self._numbers_differ.labels(model).inc(count)

    def calls_of(self, model: str, version: int) -> dict[Kind, Calls]:
        """Returns the calls of a version since it was loaded."""
        return self._calls.of(VersionLabels.of(model, version))

    def cache_counts(self, model: str, version: int) -> CacheCounts:
        """Begins the series of cached answers of a version, and returns its counts."""
        return self._cache.of(VersionLabels.of(model, version))

    def refused(self, model: str, error: BaseException) -> None:
        """Counts a call, or one request of a bulk call, if its error is a refusal."""
        if reason := rejection_of(error):
            self._rejected.labels(reason, model).inc()

    def _version_families(self) -> Iterator[Metric]:
        text = "Versions in the repository, 1 for the state they are in."
        states = gauge("model_state", text, [*NAMES, "state"])
        for model, version, state in self.read_versions():
            states.add_metric([model, str(version), state], 1)
        yield states

    def _file_families(self) -> Iterator[Metric]:
        text = "1 if the files of an option are in use as they are now, 0 if they are broken."
        successful = gauge("reload_successful", text, ["option"])
        text = "Time at which the files in use were read."
        success_s = gauge("reload_success_timestamp_seconds", text, ["option"])
        text = "Time at which the first certificate of a file expires."
        expiry_s = gauge("certificate_expiry_timestamp_seconds", text, ["option"])
        for option, (succeeded, time_s) in self._read_reloads().items():
            successful.add_metric([option], succeeded)
            success_s.add_metric([option], time_s)
        for option, time_s in self._read_expiries().items():
            expiry_s.add_metric([option], time_s)
        yield from (successful, success_s, expiry_s)


class _LostCalls(Collector):
    """Calls that gRPC has ended itself, by two scrapes: at one, a call may still be on its way."""

    def __init__(self, count: Callable[[], int]) -> None:
        self._count = count
        self._last = self._lost = 0

    def collect(self) -> Iterator[Metric]:
        now = self._count()
        self._last, self._lost = now, max(self._lost, min(self._last, now))
        text = "Calls that gRPC ended itself, because the server did not take them in time."
        yield CounterMetricFamily("seqserve_lost_calls", text, value=self._lost)
