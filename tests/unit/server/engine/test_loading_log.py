"""A load that takes long says how far it is."""

from __future__ import annotations

import logging
import time

import pytest

from seqserve_server.engine.loading import LoadingLog


def test_a_long_load_logs_its_stage_until_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with LoadingLog("nllb/1", interval_s=0.01) as log:
        for stage in ("checking files", "warming up"):
            log.enter(stage)
            time.sleep(0.1)
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
