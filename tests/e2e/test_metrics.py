"""Metrics of a real server: exactly the names and labels that dashboards use."""

from __future__ import annotations

import platform
import shutil
import subprocess
from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from seqserve import Client
from seqserve.errors import InvalidArgument

from .endless_model import NAME
from .process import ServerProcess

MODEL = {"model", "version"}
CALLS = {"method", "code", "model", "version"}
HISTOGRAMS = {
    "request_duration_seconds": CALLS,
    "queue_duration_seconds": MODEL,
    "encode_duration_seconds": MODEL,
    "compute_duration_seconds": MODEL,
    "time_to_first_token_seconds": MODEL,
    "inter_token_duration_seconds": MODEL,
    "step_duration_seconds": MODEL,
    "batch_rows": MODEL,
    "source_tokens": MODEL,
    "generated_tokens": MODEL,
}
OTHERS = {
    "answer_bytes": set(),
    "lost_calls_total": set(),
    "answers_waiting": set(),
    "requests_total": CALLS,
    "source_tokens_total": MODEL,
    "generated_tokens_total": MODEL,
    "queue_depth": {"model", "version", "priority"},
    "slots_in_use": MODEL,
    "slots": MODEL,
    "cache_bytes": MODEL,
    "drafted_tokens_total": MODEL,
    "accepted_draft_tokens_total": MODEL,
    "cancelled_total": MODEL,
    "deadline_exceeded_total": {"model", "version", "where"},
    "rejected_total": {"model", "reason"},
    "stop_total": {"model", "version", "reason"},
    "model_info": {"model", "version", "precision", "provider"},
    "model_loads_total": {"result"},
    "model_state": {"model", "version", "state"},
    "step_seconds_total": MODEL,
    "step_outside_runtime_seconds_total": MODEL,
    "engine_restarts_total": MODEL,
    "engine_resident_memory_bytes": MODEL,
    "engine_cpu_seconds_total": MODEL,
}


@pytest.fixture(scope="module")
def scraped(server: ServerProcess) -> str:
    """A scrape after a call that succeeded and one that failed."""
    with Client(server.target) as client:
        client.generate("Nobody", max_decoding_length=3)
        with pytest.raises(InvalidArgument):
            client.generate("")
    return server.get("/metrics")[1]


def test_names_and_labels(scraped: str) -> None:
    expected = dict(OTHERS)
    for name, labels in HISTOGRAMS.items():
        expected |= {f"{name}_bucket": labels | {"le"}, f"{name}_count": labels}
        expected[f"{name}_sum"] = labels
    found: dict[str, set[frozenset[str]]] = {}
    for family in text_string_to_metric_families(scraped):
        for sample in family.samples:
            if sample.name.startswith("seqserve_"):
                name = sample.name.removeprefix("seqserve_")
                found.setdefault(name, set()).add(frozenset(sample.labels))
    assert found == {name: {frozenset(labels)} for name, labels in expected.items()}


def test_values_of_labels_are_bounded(server: ServerProcess, scraped: str) -> None:
    values: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(scraped):
        for sample in family.samples:
            for label, value in sample.labels.items():
                values.setdefault(label, set()).add(value)
    assert values["model"] <= {NAME, ""}
    assert values["version"] <= {"1", ""} | {platform.python_version()}
    assert values["priority"] == {"normal", "low"}
    assert values["where"] == {"queue", "decode"}
    assert values["reason"] <= {
        "eos",
        "length",
        "stop_sequence",
        "time_limit",
        "backlog",
        "queue_full",
        "queue_tokens",
        "queue_wait",
        "caller_share",
        "deadline",
        "draining",
        "invalid",
    }
    services = ("GenerationService.", "ModelService.", "GRPCInferenceService.")
    assert all(method.startswith(services) for method in values["method"])


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("request_duration_seconds", 0.0005, 60),
        ("queue_duration_seconds", 0.0005, 60),
        ("time_to_first_token_seconds", 0.0005, 60),
        ("step_duration_seconds", 0.0001, 1),
        ("inter_token_duration_seconds", 0.0001, 1),
    ],
)
def test_buckets_grow_geometrically(scraped: str, name: str, least: float, most: float) -> None:
    bounds = sorted(
        {
            float(sample.labels["le"])
            for family in text_string_to_metric_families(scraped)
            for sample in family.samples
            if sample.name == f"seqserve_{name}_bucket"
        }
    )[:-1]
    assert bounds[0] == least
    assert most <= bounds[-1] < 1.5 * most
    ratios = [after / before for before, after in pairwise(bounds)]
    assert ratios == pytest.approx([1.5] * len(ratios), rel=0.01)


@pytest.mark.skipif(
    not shutil.which("promtool"), reason="promtool is not installed: apt-get install prometheus"
)
def test_promtool_finds_no_problem(scraped: str) -> None:
    check = subprocess.run(
        ["promtool", "check", "metrics"], input=scraped, capture_output=True, text=True, check=False
    )
    assert (check.returncode, check.stdout + check.stderr) == (0, "")


def test_probes(server: ServerProcess) -> None:
    assert server.get("/healthz") == (200, "alive\n")
    assert server.get("/readyz") == (200, "ready\n")
    assert server.get("/nothing")[0] == 404
