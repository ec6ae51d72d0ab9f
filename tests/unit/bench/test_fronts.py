import json
from pathlib import Path

import pytest
from bench import requests
from bench.drivers.scripted_engine import scripted_server
from bench.drivers.server_process import ServerProcess, seqserve_server
from bench.scenarios import fronts
from bench.served import ServedRun

from seqserve import Client


@pytest.fixture(autouse=True)
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_DECODING_LENGTH", 20)
    monkeypatch.setattr(fronts, "mixed", lambda count: ["a b c", "b"])
    monkeypatch.setattr(fronts, "everyday", lambda: ["a b c", "b"])


RUN = ServedRun(requests_per_s=100.0, front_ms=0.5, engine_ms=0.1, load_ms=0.4, busiest_front=0.9)


@pytest.mark.slow
def test_fronts_get_the_source_as_the_answer(tiny_artifact: Path, tmp_path: Path) -> None:
    server = scripted_server(seqserve_server(tiny_artifact, tmp_path), fronts=2)
    with ServerProcess(server, tmp_path / "log") as process:
        with Client(process.address) as client:
            assert client.generate("a b c").text == "a b c"
        # The first process takes no calls itself.
        assert len(process.front_cpu_s()) == 3
        assert 0 < sum(process.front_cpu_s()) < process.cpu_s()


@pytest.mark.slow
def test_servers_with_other_numbers_of_fronts_take_turns(tiny_artifact: Path) -> None:
    plan = fronts.Plan(rounds=1, turn_s=0.3, fronts=[1, 2], callers=[4])
    [report] = fronts.measure(plan, tiny_artifact)
    one, two = json.loads(json.dumps(report))["runs"]
    assert one["requests_per_s_by_first"]["median"] == one["per_cpu_s_by_first"]["median"] == 1.0
    ratio = two["requests_per_s"] / one["requests_per_s"]
    assert two["requests_per_s_by_first"]["median"] == pytest.approx(ratio)
    assert all(run["load_ms"] > 0 for run in (one, two))
    [table] = fronts.tables(report)
    assert [row[0] for row in table.rows] == ["1, 4", "2, 4"]


def test_cpu_seconds_are_those_of_all_processes() -> None:
    assert RUN.per_cpu_s == pytest.approx(1000.0)


@pytest.mark.slow
def test_a_start(tiny_artifact: Path) -> None:
    report = fronts.measure_start(1, tiny_artifact)
    assert all(report[name]["low"] > 0 for name in ("ready_s", "ready_mb", "loaded_mb"))
    [table] = fronts.start_tables(report)
    assert table.rows[0][0] == "tiny/1, fp32"
