"""Metrics: the names and labels that rules and dashboards rely on, and how figures add up."""

from __future__ import annotations

import time

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from seqserve_server.engine.request import (
    DecodingOptions,
    Failed,
    Finished,
    Request,
    StopReason,
    Timeline,
)
from seqserve_server.errors import DeadlinePassed, EngineFault, Stage
from seqserve_server.metrics import Metrics

MODEL = {"model"}

# The contract: type and labels of every family of ours.
FAMILIES = {
    "requests": ("counter", {"method", "code", "model"}),
    "request_duration_seconds": ("histogram", {"method", "model"}),
    "queue_duration_seconds": ("histogram", MODEL),
    "encode_duration_seconds": ("histogram", MODEL),
    "time_to_first_token_seconds": ("histogram", MODEL),
    "inter_token_duration_seconds": ("histogram", MODEL),
    "step_duration_seconds": ("histogram", MODEL),
    "batch_rows": ("histogram", MODEL),
    "source_tokens_total": ("counter", MODEL),
    "generated_tokens_total": ("counter", MODEL),
    "source_tokens": ("histogram", MODEL),
    "generated_tokens": ("histogram", MODEL),
    "queue_depth": ("gauge", MODEL),
    "slots_in_use": ("gauge", MODEL),
    "slots": ("gauge", MODEL),
    "cache_bytes": ("gauge", MODEL),
    "cancelled": ("counter", MODEL),
    "deadline_exceeded": ("counter", {"where", "model"}),
    "rejected": ("counter", {"reason", "model"}),
    "stop": ("counter", {"reason", "model"}),
    "model_info": ("gauge", {"model", "version", "precision", "provider"}),
    "model_loads": ("counter", {"result"}),
    "step_seconds": ("counter", MODEL),
    "step_outside_runtime_seconds": ("counter", MODEL),
}


class Busy:
    slots = 8
    queue_depth = 3
    slots_in_use = 5
    cache_bytes = 1000


def metrics_of_a_server() -> Metrics:
    metrics = Metrics()
    metrics.engine("m")
    metrics.add_engine("m", Busy())
    metrics.model_loaded("m", 1, "int8", "cpu")
    metrics.called("m", "GenerationService.Generate", "OK", 0.1)
    metrics.rejected("m", "queue_full")
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"seqserve_{name}", labels)


def request(**timeline: float) -> Request:
    return Request(
        source=[5, 2],
        options=DecodingOptions(max_decoding_length=3),
        receive=lambda event: None,
        timeline=Timeline(**timeline),
    )


def test_names_types_and_labels() -> None:
    text = generate_latest(metrics_of_a_server().registry).decode()
    # A counter may share its name with a histogram, but for the ending that only the text shows.
    types = {
        words[2].removeprefix("seqserve_"): words[3]
        for words in (line.split() for line in text.splitlines())
        if words[:2] == ["#", "TYPE"] and words[2].startswith("seqserve_")
    }
    expected = {
        name if kind != "counter" else name.removesuffix("_total") + "_total": kind
        for name, (kind, _) in FAMILIES.items()
    }
    assert types == expected
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("seqserve_")
            if sample.name.startswith("seqserve_"):
                labels.setdefault(name, set()).update(set(sample.labels) - {"le"})
    for name, (kind, wanted) in FAMILIES.items():
        sampled = {
            "counter": name.removesuffix("_total") + "_total",
            "histogram": f"{name}_bucket",
            "gauge": name,
        }[kind]
        assert labels[sampled] == wanted, name


def test_process_and_python_are_shown() -> None:
    text = generate_latest(Metrics().registry).decode()
    assert "process_resident_memory_bytes" in text and "python_info" in text


def test_no_name_is_used_twice() -> None:
    text = generate_latest(metrics_of_a_server().registry).decode()
    series = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(series) == len(set(series))


@pytest.mark.parametrize(
    ("name", "first", "at_least"),
    [
        ("request_duration_seconds", 0.0005, 60.0),
        ("queue_duration_seconds", 0.0005, 60.0),
        ("time_to_first_token_seconds", 0.0005, 60.0),
        ("step_duration_seconds", 0.0001, 1.0),
        ("inter_token_duration_seconds", 0.0001, 1.0),
        ("batch_rows", 1.0, 1024.0),
        ("source_tokens", 1.0, 1024.0),
    ],
)
def test_buckets(name: str, first: float, at_least: float) -> None:
    families = metrics_of_a_server().registry.collect()
    family = next(
        family
        for family in families
        if (family.name, family.type) == (f"seqserve_{name}", "histogram")
    )
    bounds = [
        float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")
    ]
    assert bounds == sorted(bounds)
    assert bounds[0] == first and bounds[-2] >= at_least


def test_versions_of_a_model_are_one_series() -> None:
    metrics = Metrics()
    assert metrics.engine("m") is metrics.engine("m")
    metrics.add_engine("m", Busy())
    metrics.add_engine("m", Busy())
    assert value(metrics, "queue_depth", model="m") == 6
    assert value(metrics, "slots", model="m") == 16


def test_step_counts_once_for_each_row_that_waited() -> None:
    metrics = Metrics()
    metrics.engine("m").stepped(rows=12, duration_s=0.004, outside_s=0.001)
    assert value(metrics, "step_duration_seconds_count", model="m") == 1
    assert value(metrics, "inter_token_duration_seconds_count", model="m") == 12
    assert value(metrics, "inter_token_duration_seconds_sum", model="m") == pytest.approx(0.048)
    assert value(metrics, "batch_rows_bucket", model="m", le="8") == 0
    assert value(metrics, "batch_rows_bucket", model="m", le="16") == 1
    assert value(metrics, "step_seconds_total", model="m") == pytest.approx(0.004)
    assert value(metrics, "step_outside_runtime_seconds_total", model="m") == pytest.approx(0.001)


def test_sources_and_first_tokens() -> None:
    metrics = Metrics()
    figures = metrics.engine("m")
    figures.encoded([7, 7, 7], duration_s=0.002)
    figures.first_tokens([request(arrived_s=10.0, encode_began_s=10.5, first_token_s=12.0)])
    assert value(metrics, "source_tokens_total", model="m") == 21
    assert value(metrics, "source_tokens_bucket", model="m", le="4") == 0
    assert value(metrics, "source_tokens_bucket", model="m", le="8") == 3
    assert value(metrics, "queue_duration_seconds_sum", model="m") == pytest.approx(0.5)
    assert value(metrics, "time_to_first_token_seconds_sum", model="m") == pytest.approx(2.0)


def test_ends() -> None:
    metrics = Metrics()
    figures = metrics.engine("m")
    answer = Finished(token_ids=[4, 5, 6], score=-1.0, stop_reason=StopReason.LENGTH)
    figures.ended(request(), answer)
    figures.ended(request(), Failed(DeadlinePassed(Stage.DECODE)))
    figures.ended(request(), Failed(EngineFault("a step failed")))
    figures.cancelled(request())
    assert value(metrics, "generated_tokens_total", model="m") == 3
    assert value(metrics, "generated_tokens_count", model="m") == 1
    assert value(metrics, "stop_total", model="m", reason="length") == 1
    assert value(metrics, "stop_total", model="m", reason="eos") == 0
    assert value(metrics, "deadline_exceeded_total", model="m", where="decode") == 1
    assert value(metrics, "deadline_exceeded_total", model="m", where="queue") == 0
    assert value(metrics, "cancelled_total", model="m") == 1


def test_requests_that_are_late_in_the_queue_count_in_its_duration() -> None:
    metrics = Metrics()
    late = request(arrived_s=time.monotonic() - 2.0)
    metrics.engine("m").ended(late, Failed(DeadlinePassed(Stage.QUEUE)))
    seconds = value(metrics, "queue_duration_seconds_sum", model="m")
    assert seconds is not None and seconds >= 2.0


@pytest.mark.parametrize(("encode_began_s", "where"), [(0.0, "queue"), (1.0, "decode")])
def test_cancel_at_the_deadline_counts_as_late(encode_began_s: float, where: str) -> None:
    metrics = Metrics()
    late = request(encode_began_s=encode_began_s)
    late.deadline_s = time.monotonic()
    metrics.engine("m").cancelled(late)
    assert value(metrics, "deadline_exceeded_total", model="m", where=where) == 1
    assert value(metrics, "cancelled_total", model="m") == 0


def test_loads() -> None:
    metrics = Metrics()
    metrics.model_loaded("m", 3, "int8", "cpu")
    metrics.model_failed()
    labels = {"model": "m", "version": "3", "precision": "int8", "provider": "cpu"}
    assert value(metrics, "model_info", **labels) == 1
    assert value(metrics, "model_loads_total", result="success") == 1
    assert value(metrics, "model_loads_total", result="failure") == 1


def test_sources_encoded_together_are_counted_by_their_own_lengths() -> None:
    metrics = Metrics()
    metrics.engine("m").encoded([2, 100], duration_s=0.002)
    assert value(metrics, "source_tokens_total", model="m") == 102
    for bound, count in (("2", 1), ("64", 1), ("128", 2)):
        assert value(metrics, "source_tokens_bucket", model="m", le=bound) == count
