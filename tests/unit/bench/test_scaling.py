from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
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


def test_layouts_decode_the_same_sentences(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "available_cores", lambda: 2)
    monkeypatch.setattr(scaling, "everyday", lambda: ["a b c", "b", "c a"] * 4)
    report = scaling.measure_artifact(tiny_artifact, Plan(rounds=1, turn_s=0.0))
    assert [(row["processes"], row["workers"]) for row in report["layouts"]] == [
        (1, 1),
        (1, 2),
        (2, 1),
    ]
    assert report["layouts"][0]["by_one_core"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert 0 < report["outside_share"] < 1
    assert report["busy_workers_at_most"] == 1 / report["outside_share"]
    [table] = scaling.tables([report])
    assert table.rows[0][0] == "processes: 1, workers of each: 1"
    assert table.rows[0][1].endswith("1.00 (1.00-1.00)")


def test_named_layouts_are_measured_beside_one_core(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "everyday", lambda: ["a b c", "b", "c a"] * 4)
    plan = Plan(rounds=1, turn_s=0.0, layouts=[Layout.parse("2,1")])
    report = scaling.measure_artifact(tiny_artifact, plan)
    assert [(row["processes"], row["workers"]) for row in report["layouts"]] == [(1, 1), (2, 1)]


def test_every_worker_gets_the_same_sentences(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(scaling, "everyday", lambda: ["a b c", "b", "c a"] * 4)
    monkeypatch.setattr(scaling, "EngineProcess", lambda *arguments: made.append(arguments))
    for number in range(2):
        scaling._engine(tiny_artifact, Layout(2, 3), 4, number)
    first, second = (sources for _, sources, _, _ in made)
    assert first != second
    assert sorted(first) == sorted(second)
    assert len(first) == 12 * 3 * 4
    assert [(slots, workers) for _, _, slots, workers in made] == [(96, 3), (96, 3)]


@pytest.mark.parametrize("text", ["2", "2,x", "1,2,3"])
def test_a_layout_has_two_numbers(text: str) -> None:
    with pytest.raises(ValueError):
        Layout.parse(text)
