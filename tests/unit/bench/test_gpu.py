"""The cases of a GPU, here on the CPU: speeds, steps, reasons, and no more than the time allows."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from bench import random_artifact, served
from bench.drivers.device_engines import StepTime, Turn
from bench.models import MARIAN_BASE
from bench.random_artifact import Device, DeviceLimits, Work
from bench.scenarios import gpu
from bench.scenarios.gpu import Plan
from bench.scenarios.gpu_cases import CASES, LENGTH, Case, tables
from tests.tiny import cut_down

TINY = cut_down(MARIAN_BASE)


@pytest.mark.parity
def test_engines_decode_a_shape_or_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(random_artifact.SHAPES, "Marian base", TINY)
    monkeypatch.setattr(served, "_SECONDS", 0.5)
    monkeypatch.setattr(served, "_SOURCES", 2_000)
    labels = ["marian-base:2", "marian-base:2:beam", "marian-base:2:served"]
    cases = [Case.parse(label) for label in labels]
    plan = Plan(device="cpu", rounds=1, cases=cases, folder=tmp_path)
    for report in gpu.measure(plan):
        json.dumps(report)
    assert [case["label"] for case in report["cases"]] == labels[:2]
    first, beam = report["cases"]
    names = [peer["name"] for peer in first["peers"]]
    assert names == ["seqserve fp16", "CTranslate2 fp32", "CTranslate2 int8", "transformers fp32"]
    assert not first["failed"]
    assert all(peer["lengths"] == [LENGTH] for peer in first["peers"])
    assert first["step"]["steps"] >= LENGTH - 2
    assert 0 < first["step"]["outside_share"] < 1
    [row] = report["served"]
    assert row["callers"] == 2 and row["failed"] == 0 and row["requests_per_s"] > 0
    assert [peer["name"] for peer in beam["peers"]] == names[:3]
    assert len(tables(report)) == 4
    # A model that is there is not written again; one that cannot be read fails alone.
    (tmp_path / "marian-base" / "converted" / "model.bin").write_bytes(b"")
    [report] = gpu.measure(dataclasses.replace(plan, cases=cases[:1]))
    [case] = report["cases"]
    assert [peer["name"] for peer in case["peers"]] == ["seqserve fp16", "transformers fp32"]
    assert list(case["failed"]) == ["CTranslate2 fp32", "CTranslate2 int8"]
    speeds, steps = tables(report)
    assert ["CTranslate2 fp32", "failed"] in speeds.rows
    assert "CTranslate2 fp32: RuntimeError" in speeds.note
    assert steps.rows[0][0] == "marian-base:2"


def test_cases_are_left_out_when_the_time_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = DeviceLimits("CPU", 1e9, 1e9)
    monkeypatch.setattr(gpu, "_prepare", lambda *_: limits)
    monkeypatch.setattr(Work, "of", lambda _: Work(1, 1))
    reports = list(gpu.measure(Plan(max_s=0.0, folder=tmp_path)))
    assert reports[-1]["left_out"] == [case.label for case in CASES]
    assert tables(reports[-1]) == []


def test_a_case_is_written_as_it_is_read() -> None:
    assert [Case.parse(case.label) for case in CASES] == list(CASES)
    assert len(set(CASES)) == len(CASES)
    for text in ("marian-base", "t5:1", "marian-base:x", "marian-base:1:fast"):
        with pytest.raises(ValueError):
            Case.parse(text)


def test_steps_with_fewer_rows_do_not_count() -> None:
    steps = [StepTime(4, 0.002, 0.0005), StepTime(3, 9.0, 9.0), StepTime(4, 0.004, 0.001)]
    turn = Turn(tokens=8, seconds=1.0, steps=steps, encoded_tokens=100, encode_s=0.25)
    assert gpu._step([turn]) == {
        "steps": 2,
        "rows": 4.0,
        "step_us": {"median": 3000.0, "low": 2000.0, "high": 4000.0},
        "outside_share": pytest.approx(0.25),
        "outside_us": 750.0,
        "encode_us_a_token": 2500.0,
        "encode_share": 0.25,
    }
    assert gpu._step([Turn(tokens=8, seconds=1.0)]) is None


def test_shares_of_limits_stand_beside_a_step() -> None:
    step: dict[str, Any] = {
        "rows": 64.0,
        "step_us": {"median": 100.0, "low": 90.0, "high": 110.0},
        "outside_share": 0.2,
        "outside_us": 20.0,
        "encode_us_a_token": 1.5,
        "encode_share": 0.1,
    }
    case = {**dataclasses.asdict(Case("Marian base", 64)), "label": "marian-base:64", "failed": {}}
    report = {
        "limits": {"name": "G", "bytes_per_s": 1e12, "operations_per_s": 1e14},
        "work": {"Marian base": {"weights": 10_000_000, "bytes": 20_000_000}},
        "cases": [{**case, "peers": [], "step": step}],
        "served": [],
    }
    _, steps = tables(report)
    row = ["marian-base:64", "64", "100", "20%", "13%", "20%", "20", "1.5", "10%"]
    assert steps.rows == [row]


def test_limits_of_this_machine_are_plausible() -> None:
    limits = Device("cpu").measure()
    assert limits.bytes_per_s > 1e8
    assert limits.operations_per_s > 1e8
