from __future__ import annotations

from pathlib import Path

import pytest
from bench.scenarios import scaling
from bench.scenarios.scaling import Layout, layouts


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
    report = scaling.measure_artifact(tiny_artifact, 1, repeat=1)
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
