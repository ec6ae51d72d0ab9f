from pathlib import Path
from typing import Any

import pytest
from bench import requests
from bench.scenarios import scaling
from bench.scenarios.scaling import Layout, Plan, layouts


@pytest.mark.parametrize(
    ("cores", "expected"),
    [
        (1, [(1, 1)]),
        (2, [(1, 1), (1, 2), (2, 1)]),
        (6, [(1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (1, 6), (6, 1)]),
        (8, [(1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (1, 8), (8, 1)]),
    ],
)
def test_cores_double_up_to_all(cores: int, expected: list[tuple[int, int]]) -> None:
    assert layouts(cores) == [Layout(*pair) for pair in expected]


@pytest.mark.slow
def test_layouts_decode_and_serve_the_same_sentences(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "MAX_DECODING_LENGTH", 20)
    monkeypatch.setattr(scaling, "mixed", lambda count: ["a b c", "b", "c a"] * (count // 3))
    plan = Plan(rounds=1, turn_s=0.3, layouts=[Layout.parse("2,1")], fronts=[2], callers=[8])
    [report] = scaling.measure_artifact(tiny_artifact, plan)
    one, two = report["layouts"]
    assert [(row["processes"], row["workers"]) for row in (one, two)] == [(1, 1), (2, 1)]
    assert one["by_one_core"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert 0 < report["outside_share"] < 1
    assert report["busy_workers_at_most"] == 1 / report["outside_share"]
    assert [(run["fronts"], run["callers"]) for run in two["served"]] == [(2, 8)]
    for row in (one, two):
        [run] = row["served"]
        ratio = run["requests_per_s"] / row["sentences_per_s"]
        assert run["by_engine"]["median"] == pytest.approx(ratio)
    engines, served = scaling.tables(report)
    assert engines.rows[0][0] == "processes: 1, workers of each: 1"
    assert engines.rows[0][-1] == "1.00 (1.00-1.00)"
    assert served.rows[-1][:2] == ["processes: 2, workers of each: 1", "2, 8"]


def test_every_worker_gets_the_same_sentences(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(scaling, "EngineProcess", lambda *arguments: made.append(arguments))
    for number in range(2):
        scaling._engine(tiny_artifact, Layout(2, 3), 40, number)
    first, second = (sources for _, sources, _, _ in made)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(first) == 40 * 3
    assert [(slots, workers) for _, _, slots, workers in made] == [(96, 3), (96, 3)]


@pytest.mark.parametrize("text", ["2", "2,x", "1,2,3"])
def test_a_layout_has_two_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        Layout.parse(text)
