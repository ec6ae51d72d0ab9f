import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from seqserve.command import plan as plan_command
from seqserve.command.load_options import LoadOptions
from seqserve.command.main import main
from seqserve.command.plan_options import PlanOptions
from seqserve.errors import OptionError
from seqserve.load.rate_search import RateSearch
from seqserve.processes import available_cores

from ..fake_server import FakeServer

RESULT: dict[str, Any] = {
    "target": "server:50051",
    "dataset_path": "texts.txt",
    "burstiness": 1.0,
    "request_throughput": 120.0,
    "mean_e2el_ms": 100.0,
    "p99_e2el_ms": 280.0,
    "completed": 100,
    "total_input_tokens": 1400,
    "total_output_tokens": 1200,
    "limit_p99_ms": 300.0,
    "lone_p99_ms": 20.0,
    "highest_request_rate": 120.0,
    "probes": [],
}


def report(tmp_path: Path, **changes: Any) -> str:
    path = tmp_path / "load.json"
    path.write_text(json.dumps({**RESULT, **changes}), encoding="utf-8")
    return str(path)


def planned(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main(["plan", "--json", *argv]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[LoadOptions]:
    """The loads that were searched; each search finds the same."""
    searched: list[LoadOptions] = []

    def find_rate(options: LoadOptions, *_: object) -> RateSearch:
        searched.append(options)
        result = {**RESULT, "target": options.target}
        return RateSearch(
            result=result, answers=[], probes=[], unloaded_ms=20.0, warnings=["at 9: late"]
        )

    monkeypatch.setattr(plan_command, "find_rate", find_rate)
    return searched


def test_a_report_is_divided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = planned(capsys, "--rate", "200", "--report", report(tmp_path), "--cores", "4")
    assert (facts["replicas"], facts["spare_for_rolling_update"]) == (3, 1)
    assert facts["replica"]["in_flight"] == pytest.approx(12.0)
    assert facts["load"] == pytest.approx(200 / 360)
    assert facts["load_if_one_fails"] == pytest.approx(200 / 240)
    assert facts["values"]["cores"] == 4


def test_what_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--rate", "200", "--report", report(tmp_path), "--headroom", "1"]) == 0
    out = capsys.readouterr().out
    assert "One server handles 120 requests a second within p99 300 ms (280.0 ms)" in out
    assert "2: 200 / (120 x 1), each at 83% of its capacity" in out
    assert "some requests would be late or refused" in out
    assert "--set replicas=2,memory.versions=5,memory.versionMi=160\n" in out
    assert "texts.txt, 14 tokens that give 12 on average" in out
    assert "set their number with --cores" in out
    assert main(["plan", "--rate", "1", "--report", report(tmp_path)]) == 0
    assert "no server is left" in capsys.readouterr().out


def test_a_server_is_measured_and_asked(
    server: FakeServer, capsys: pytest.CaptureFixture[str], found: list[LoadOptions]
) -> None:
    call = ("--target", server.target, "--model", "capitals", "--beam-size", "2")
    facts = planned(capsys, "--rate", "200", "--p99-ms", "300", "--duration", "24", *call)
    [load] = found
    assert (load.find_rate, load.p99, load.duration) == (True, 300.0, 2.0)
    assert (load.model, load.call()["beam_size"]) == ("capitals", 2)
    # It does not speak the protocol that tells of memory.
    assert facts["replica"]["version_bytes"] is None
    assert (facts["replica"]["slots"], facts["replica"]["loaded_versions"]) == (64, 1)
    assert facts["values"]["options"] == {"SEQSERVE_SLOTS": 64}
    assert "cores" not in facts["values"]
    assert facts["doubts"] == ["at 9: late"]


def test_a_server_that_does_not_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "missing"
    assert main(["plan", "--rate", "1", "--p99-ms", "9", "--model-repository", str(folder)]) == 1
    err = capsys.readouterr().err
    report = "the server to measure did not start (--target measures one that runs): seqserve: "
    assert report in err
    assert str(folder) in err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lone_p99_ms": 400.0}, "with one request at a time, the lowest load tried, p99 is 400"),
        (
            {
                "probes": [
                    {"rate_per_s": 9.0, "p99_ms": "inf"},
                    {"rate_per_s": 4.0, "p99_ms": 350.5},
                ]
            },
            "at 4 requests a second, the lowest load tried, p99 is 350.5 ms",
        ),
        ({"probes": [{"rate_per_s": 9.0, "p99_ms": "inf"}]}, "p99 is infinite, because some fail"),
    ],
)
def test_no_rate_holds(
    changes: dict[str, Any], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = report(tmp_path, highest_request_rate=None, **changes)
    assert main(["plan", "--rate", "1", "--report", path]) == 1
    err = capsys.readouterr().err
    assert "no rate keeps p99 within 300 ms: " in err
    assert words in err
    assert "A higher --p99-ms" in err


def test_reports_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain, none = tmp_path / "plain.json", "is not a result of `seqserve load --find-rate`"
    plain.write_text('{"request_throughput": 1.0}', encoding="utf-8")
    changes: list[dict[str, Any]] = [{"mean_e2el_ms": None}, {"completed": "many"}]
    for write in (lambda: str(plain), *(partial(report, tmp_path, **each) for each in changes)):
        assert main(["plan", "--rate", "1", "--report", write()]) == 2
        assert none in capsys.readouterr().err
    assert main(["plan", "--rate", "1", "--report", report(tmp_path), "--p99-ms", "9"]) == 2
    assert "--p99-ms: the report has a limit of 300 ms" in capsys.readouterr().err


def test_a_variable_that_does_not_fit_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SEQSERVE_TARGET", "a:1,b:1")
    assert main(["plan", "--rate", "1", "--p99-ms", "9"]) == 2
    assert "seqserve: SEQSERVE_TARGET: one server is measured" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "--p99-ms: is required"),
        ({"target": "a:1,b:1", "p99_ms": 9.0}, "--target: one server is measured, not several"),
        ({"target": "a:1", "report": Path("a")}, "--target: does not go with --report"),
        ({"target": "a:1", "p99_ms": 9.0, "slots": 4}, "--slots: is of a server that is started"),
        (
            {"report": Path("a"), "model_repository": Path("a")},
            "--model-repository: is of a server",
        ),
        ({"p99_ms": 9.0, "cores": available_cores() + 1}, "--cores: a server that is started here"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        PlanOptions(rate=1.0, **options)
