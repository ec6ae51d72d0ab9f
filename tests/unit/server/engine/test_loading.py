import logging
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.process import until

from seqserve_server.artifact.records import SelfTest
from seqserve_server.contract.errors import ArtifactError
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.engine.loading import LoadingLog, load, run_self_test
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.runtime import Runtime


def test_a_limit_on_threads_is_told(tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    limits = EngineLimits(workers=1, slots=2, max_queue=2, max_source_tokens_per_step=64)
    setup = Setup(tiny_artifact, Provider.CPU, 1, limits)
    with pytest.raises(ArtifactError, match=r"^tiny/1: the limit on threads .*: `ulimit -u`"):
        load(setup, lambda events: None, Observer())


def test_a_long_load_logs_its_stage_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LoadingLog("nllb/1", interval_s=0.01) as log:
        for stage in ("checking files", "warming up"):
            log.enter(stage)
            until(lambda stage=stage: stage in str([vars(each) for each in caplog.records]))
    records = list(caplog.records)
    fields = [vars(record)["fields"] for record in records]
    assert {record.message for record in records} == {"model loading"}
    assert {field["model"] for field in fields} == {"nllb/1"}
    stages = [field["stage"] for field in fields]
    assert {"checking files", "warming up"} <= {*stages}
    assert stages == sorted(stages)
    assert fields[0]["seconds"] <= fields[-1]["seconds"]
    time.sleep(0.05)
    assert len(caplog.records) == len(records)


def test_a_short_load_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LoadingLog("en-de/1") as log:
        log.enter("checking files")
    assert caplog.records == []


SOURCE = "The coffee tastes music."


class StepEvents:
    """A runtime whose manifest says something else."""

    def __init__(self, runtime: Runtime, self_test: SelfTest | None) -> None:
        self._runtime = runtime
        self.manifest = replace(runtime.manifest, self_test=self_test)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)


def run(offline: LocalEngine, self_test: SelfTest | None) -> None:
    told: Any = StepEvents(offline.runtime, self_test)
    run_self_test(told, offline.tokenizer)


def test_same_target_passes(tiny_offline: LocalEngine) -> None:
    run(tiny_offline, SelfTest(source=SOURCE, target=tiny_offline([SOURCE])[0]))


def test_model_without_a_self_test_passes() -> None:
    nothing: Any = SimpleNamespace(manifest=SimpleNamespace(self_test=None))
    run_self_test(nothing, nothing)


def test_error_names_both_targets(tiny_offline: LocalEngine) -> None:
    found = tiny_offline([SOURCE])[0]
    with pytest.raises(ArtifactError) as caught:
        run(tiny_offline, SelfTest(source=SOURCE, target="Musik"))
    message = str(caught.value)
    assert message.startswith("tiny/1: self_test: ") and "'Musik'" in message
    assert repr(found) in message


def test_source_that_does_not_fit(tiny_offline: LocalEngine) -> None:
    with pytest.raises(ArtifactError, match=r"self_test\.source has \d+ tokens"):
        run(tiny_offline, SelfTest(source="long " * 100, target=""))
