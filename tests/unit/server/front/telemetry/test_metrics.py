import os

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.unit.server.front.telemetry.test_engine_metrics import Busy

from seqserve_server.contract.errors import QueueFull
from seqserve_server.front.telemetry.call_metrics import Kind
from seqserve_server.front.telemetry.metrics import Metrics

MODEL = {"model", "version"}
CALLS = {"method", "code", "model", "version"}
GENERATE = Kind("GenerationService.Generate", "OK")

# The contract: type and labels of every family of ours.
FAMILIES = {
    "requests": ("counter", CALLS),
    "request_duration_seconds": ("histogram", CALLS),
    "queue_duration_seconds": ("histogram", MODEL),
    "encode_duration_seconds": ("histogram", MODEL),
    "compute_duration_seconds": ("histogram", MODEL),
    "time_to_first_token_seconds": ("histogram", MODEL),
    "inter_token_duration_seconds": ("histogram", MODEL),
    "step_duration_seconds": ("histogram", MODEL),
    "batch_rows": ("histogram", MODEL),
    "source_tokens_total": ("untyped", MODEL),
    "generated_tokens_total": ("untyped", MODEL),
    "source_tokens": ("histogram", MODEL),
    "generated_tokens": ("histogram", MODEL),
    "queue_depth": ("gauge", {"priority", *MODEL}),
    "slots_in_use": ("gauge", MODEL),
    "slots": ("gauge", MODEL),
    "cache_bytes": ("gauge", MODEL),
    "gpu_memory_used_bytes": ("gauge", MODEL),
    "gpu_memory_bytes": ("gauge", MODEL),
    "gpu_unrecorded_steps": ("gauge", MODEL),
    "answer_cache_lookups": ("counter", {"result", *MODEL}),
    "answer_cache_evictions": ("counter", MODEL),
    "answer_cache_bytes": ("gauge", MODEL),
    "drafted_tokens": ("counter", MODEL),
    "accepted_draft_tokens": ("counter", MODEL),
    "cancelled": ("counter", MODEL),
    "deadline_exceeded": ("counter", {"where", *MODEL}),
    "rejected": ("counter", {"reason", "model"}),
    "stop": ("counter", {"reason", *MODEL}),
    "model_info": ("gauge", {"model", "version", "precision", "provider"}),
    "numbers_differ": ("counter", {"model"}),
    "model_loads": ("counter", {"result"}),
    "model_evictions": ("counter", set()),
    "model_load_seconds": ("summary", set()),
    "model_state": ("gauge", {"model", "version", "state"}),
    "step_seconds": ("counter", MODEL),
    "step_outside_runtime_seconds": ("counter", MODEL),
    "reload_successful": ("gauge", {"option"}),
    "reload_success_timestamp_seconds": ("gauge", {"option"}),
    "certificate_expiry_timestamp_seconds": ("gauge", {"option"}),
    "engine_restarts": ("counter", MODEL),
    "engine_resident_memory_bytes": ("gauge", MODEL),
    "engine_cpu_seconds": ("counter", MODEL),
}


def busy() -> Busy:
    return Busy(pids=(os.getpid(),), gpu_used_bytes=40, gpu_total_bytes=80)


def metrics_of_a_server() -> Metrics:
    metrics = Metrics()
    metrics.model_loaded("m", 1, "int8", "cpu", busy(), 0.5)
    metrics.cache_counts("m", 1)
    metrics.read_versions = lambda: [("m", 1, "ready")]
    metrics.show_files(lambda: {"--tokens": (True, 2.0)}, lambda: {"--tls-certificate": 3.0})
    metrics.called("m", 1, *GENERATE, 0.1, {"request_id": "a1"})
    metrics.refused("m", QueueFull("full", 1.0))
    metrics.numbers_differ("m", 2)
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"seqserve_{name}", labels)


def test_names_types_and_labels() -> None:
    text = generate_latest(metrics_of_a_server().registry).decode()
    assert "process_resident_memory_bytes" in text and "python_info" in text
    types = {
        words[2].removeprefix("seqserve_"): words[3]
        for words in (line.split() for line in text.splitlines())
        if words[:2] == ["#", "TYPE"] and words[2].startswith("seqserve_")
    }
    expected = {
        f"{name}_total" if kind == "counter" else name: kind for name, (kind, _) in FAMILIES.items()
    }
    assert types == expected
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name.removeprefix("seqserve_")
            if sample.name.startswith("seqserve_"):
                labels.setdefault(name, set()).update(set(sample.labels) - {"le"})
    for name, (kind, wanted) in FAMILIES.items():
        endings = {"counter": "_total", "histogram": "_bucket", "summary": "_count"}
        sampled = name + endings.get(kind, "")
        assert labels[sampled] == wanted, name


@pytest.mark.parametrize(
    ("name", "first", "at_least"),
    [
        *((f"{name}_seconds", 0.0005, 60.0) for name in ("request_duration", "queue_duration")),
        ("time_to_first_token_seconds", 0.0005, 60.0),
        *((f"{name}_seconds", 0.0001, 1.0) for name in ("step_duration", "inter_token_duration")),
        *((name, 1.0, 1024.0) for name in ("batch_rows", "source_tokens")),
    ],
)
def test_buckets(name: str, first: float, at_least: float) -> None:
    families = metrics_of_a_server().registry.collect()
    wanted = (f"seqserve_{name}", "histogram")
    family = next(each for each in families if (each.name, each.type) == wanted)
    buckets = [each.labels for each in family.samples if each.name.endswith("_bucket")]
    bounds = [float(labels["le"]) for labels in buckets]
    assert bounds == sorted(bounds)
    assert bounds[0] == first and bounds[-2] >= at_least


def test_loads() -> None:
    metrics = Metrics()
    metrics.model_loaded("m", 3, "int8", "cpu", busy(), 0.5)
    metrics.model_failed()
    labels = {"model": "m", "version": "3", "precision": "int8", "provider": "cpu"}
    assert value(metrics, "model_info", **labels) == 1
    assert value(metrics, "model_loads_total", result="success") == 1
    assert value(metrics, "model_loads_total", result="failure") == 1


def calls(metrics: Metrics, version: str) -> float | None:
    return value(metrics, "requests_total", model="m", version=version, **GENERATE._asdict())


def test_unloaded_version_is_no_longer_shown() -> None:
    metrics = Metrics()
    states = [("m", 3, "ready"), ("m", 4, "failed")]
    metrics.read_versions = lambda: states
    metrics.model_loaded("m", 3, "int8", "cpu", busy(), 0.5)
    third = {"model": "m", "version": "3"}
    assert value(metrics, "slots", **third) == 8
    assert value(metrics, "model_state", model="m", version="4", state="failed") == 1
    metrics.model_unloaded("m", 3, "int8", "cpu")
    assert value(metrics, "model_info", **third, precision="int8", provider="cpu") is None
    assert value(metrics, "slots", **third) is None
    states[:] = [("m", 3, "available")]
    assert value(metrics, "model_state", **third, state="available") == 1
    assert value(metrics, "model_state", **third, state="ready") is None
    assert value(metrics, "model_state", model="m", version="4", state="failed") is None


def test_state_of_files_is_that_of_the_scrape() -> None:
    metrics = Metrics()
    reloads, expiries = {"--tokens": (True, 2.0)}, {"--tls-certificate": 3.0}
    metrics.show_files(lambda: reloads, lambda: expiries)
    assert value(metrics, "reload_successful", option="--tokens") == 1
    reloads["--tokens"] = (False, 2.0)
    assert value(metrics, "reload_successful", option="--tokens") == 0
    assert value(metrics, "reload_success_timestamp_seconds", option="--tokens") == 2
    expiry_s = value(metrics, "certificate_expiry_timestamp_seconds", option="--tls-certificate")
    assert expiry_s == 3


def test_series_of_an_unloaded_version_end_once_they_were_scraped() -> None:
    metrics = Metrics()

    def shown() -> tuple[float | None, ...]:
        names = ("answer_cache_evictions_total", "engine_restarts_total", "cancelled_total")
        series = (value(metrics, name, model="m", version="3") for name in names)
        return (calls(metrics, "3"), *series)

    for times in (1, 2):
        metrics.model_loaded("m", 3, "int8", "cpu", busy(), 0.5)
        metrics.called("m", 3, *GENERATE, 0.1, {})
        metrics.cache_counts("m", 3).evictions += 1
        metrics.model_unloaded("m", 3, "int8", "cpu")
        assert shown() == (times, times, times, 0)
    # One that is loaded again keeps them.
    metrics.model_loaded("m", 3, "int8", "cpu", busy(), 0.5)
    metrics.forget_model("m", 3)
    assert shown() == (2, 2, 3, 0)
    metrics.model_unloaded("m", 3, "int8", "cpu")
    metrics.called("m", 3, *GENERATE, 0.1, {})
    assert shown() == (3, 2, 3, 0)
    metrics.forget_model("m", 3)
    assert 'version="3"' not in generate_latest(metrics.registry).decode()


@pytest.mark.parametrize(("model", "version"), [("", 0), ("m", 9)])
def test_calls_of_no_version_that_is_loaded_have_no_version(model: str, version: int) -> None:
    metrics = metrics_of_a_server()
    metrics.called(model, version, *GENERATE, 0.1, {})
    labels = {"model": model, "version": "", **GENERATE._asdict()}
    assert value(metrics, "requests_total", **labels) == 1


def test_durations_are_kept_by_outcome() -> None:
    metrics = metrics_of_a_server()
    for _ in range(9):
        refused = Kind(GENERATE.method, "RESOURCE_EXHAUSTED")
        metrics.called("m", 1, *refused, 0.0003, {})
    labels = {"method": GENERATE.method, "model": "m", "version": "1", "le": "0.0005"}
    name = "request_duration_seconds_bucket"
    assert value(metrics, name, code="OK", **labels) == 0
    assert value(metrics, name, code="RESOURCE_EXHAUSTED", **labels) == 9
