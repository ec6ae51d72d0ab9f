import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import multiprocess, values
from prometheus_client.parser import text_string_to_metric_families

from seqserve_gateway.endpoint import Metrics


@pytest.fixture(autouse=True)
def count_again_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(values, "ValueClass", values.ValueClass)
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    yield
    values.close_all_multiprocess_files()


def sample(metrics: Metrics, name: str) -> float:
    families = text_string_to_metric_families(metrics.text().decode())
    return sum(each.value for family in families for each in family.samples if each.name == name)


def test_each_process_shows_what_all_have_counted(tmp_path: Path) -> None:
    processes = [Metrics(number, tmp_path) for number in range(3)]
    for connections, each in enumerate(processes):
        each.connections.set_function(lambda count=connections: count)
        each.in_progress.set_function(lambda: 1)
        each.ended("v1", "/v1/generate", "OK", 0.25)
        each.publish()
    for each in processes:
        assert sample(each, "seqserve_http_connections") == 3
        assert sample(each, "seqserve_http_requests_total") == 3
        assert sample(each, "seqserve_http_request_duration_seconds_count") == 3
        assert sample(each, "seqserve_http_request_duration_seconds_sum") == 0.75


def test_process_that_takes_the_place_of_another_one_counts_on(tmp_path: Path) -> None:
    other, first = Metrics(0, tmp_path), Metrics(1, tmp_path)
    for each in (other, first):
        each.connections.set_function(lambda: 2)
        each.in_progress.set_function(lambda: 0)
        each.ended("v1", "/v1/generate", "OK", 0.25)
        each.publish()
    multiprocess.mark_process_dead(1, tmp_path)
    assert sample(other, "seqserve_http_connections") == 2
    Metrics(1, tmp_path).ended("v1", "/v1/generate", "OK", 0.25)
    assert sample(other, "seqserve_http_requests_total") == 3


def test_files_and_memory_are_those_of_the_parent_and_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics(0, tmp_path)
    for gauge in (metrics.connections, metrics.in_progress):
        gauge.set_function(lambda: 0)
    monkeypatch.setattr(os, "getppid", os.getpid)
    names = ("process_open_fds", "process_resident_memory_bytes", "process_start_time_seconds")
    # What earlier tests have left must not go meanwhile.
    gc.collect()
    before = [sample(metrics, name) for name in names]
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as child:
        both = [sample(metrics, name) for name in names]
        child.kill()
    alone = [*map(min, before, (sample(metrics, name) for name in names))]
    assert both[0] >= alone[0] + 3
    assert both[1] > alone[1]
    assert both[2] == alone[2]
