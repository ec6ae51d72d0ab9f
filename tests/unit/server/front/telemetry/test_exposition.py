"""OpenMetrics: the same series as in plain text, and exemplars."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.parser import text_string_to_metric_families as of_text
from tests.unit.server.front.telemetry.test_metrics import GENERATE, metrics_of_a_server

from seqserve_server.front.telemetry.metrics import Metrics
from seqserve_server.front.telemetry.scrape import render

OPENMETRICS = "application/openmetrics-text;version=1.0.0,*/*;q=0.1"

Parse = Callable[[str], Iterable[Metric]]


def series(metrics: Metrics, accept: str, parse: Parse) -> set[tuple[str, frozenset[object]]]:
    text = render(metrics.registry, accept)[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items()))
        for family in parse(text)
        for sample in family.samples
    }


def test_series_do_not_depend_on_the_format() -> None:
    metrics = metrics_of_a_server()
    # The parser refuses what the format does not allow, such as two families of one name.
    assert series(metrics, OPENMETRICS, of_openmetrics) == series(metrics, "", of_text)


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain;version=0.0.4"])
def test_plain_text_is_the_default(accept: str) -> None:
    text, kind = render(metrics_of_a_server().registry, accept)
    assert kind.startswith("text/plain") and b"# EOF" not in text and b" # {" not in text


def test_bucket_has_its_last_call_as_exemplar() -> None:
    metrics = Metrics()
    for id_, duration_s in (("first", 0.0101), ("second", 0.0102), ("slow", 30.0)):
        metrics.called("m", 0, GENERATE, duration_s, {"trace_id": id_})
    text = render(metrics.registry, OPENMETRICS)[0].decode()
    exemplars = [
        sample.exemplar
        for family in of_openmetrics(text)
        if family.name == "seqserve_request_duration_seconds"
        for sample in family.samples
        if sample.exemplar
    ]
    found = [(exemplar.labels["trace_id"], exemplar.value) for exemplar in exemplars]
    assert found == [("second", 0.0102), ("slow", 30.0)]
