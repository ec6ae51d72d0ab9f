from collections.abc import Sequence
from functools import partial

import pytest
from bench import comparison
from bench.comparison import Build, compare, fastest, speed_table, take_turns
from bench.drivers import Driver, Rows


class Reverse(Driver[list[int]]):
    """Reverses its sources, and counts the drivers that are open."""

    open_drivers = 0

    def __init__(self, name: str, extra: Sequence[int] = ()) -> None:
        self.name, self._extra = name, extra
        Reverse.open_drivers += 1

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        return [[*source[::-1], *self._extra] for source in sources]

    def close(self) -> None:
        Reverse.open_drivers -= 1


def engines(*differing: str) -> list[Build[list[int]]]:
    names = ["seqserve int8", "seqserve fp32", "CTranslate2 int8 2x1", "CTranslate2 fp32 1x2"]
    return [partial(Reverse, name, (7,) if name in differing else ()) for name in names]


def test_every_engine_runs_once_a_round() -> None:
    order: list[str] = []
    results = take_turns({name: partial(order.append, name) for name in "ab"}, 2)
    assert order == ["a", "b", "a", "b"]
    assert results == {"a": [None, None], "b": [None, None]}


def test_a_comparison_has_the_ratios_of_all_pairs_and_closes_its_engines() -> None:
    table = compare(engines("CTranslate2 int8 2x1"), [[1, 2], [3]], 8, 3)
    assert [peer["equal_share"] for peer in table["peers"]] == [1.0, 1.0, 0.0, 1.0]
    ours, *_, theirs = table["peers"]
    assert ours["ratios"]["seqserve int8"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert set(theirs["ratios"]) == {peer["name"] for peer in table["peers"]}
    assert Reverse.open_drivers == 0
    shown = speed_table("words; rows", [table])
    assert [row[0] for row in shown.rows][:4] == [
        *("seqserve int8", "seqserve fp32", "CTranslate2 int8", "CTranslate2 fp32")
    ]
    assert list(shown.rows[-1]) == ["same as at fp32, int8: seqserve, CTranslate2", "100%, 0%"]


def test_other_words_at_fp32_are_refused_unless_they_are_samples() -> None:
    differing = engines("CTranslate2 fp32 1x2")
    with pytest.raises(SystemExit, match="CTranslate2 fp32 1x2 agrees on"):
        compare(differing, [[1]], 8, 1)
    assert compare(differing, [[1]], 8, 1, may_differ=True)["rows"] == 8
    assert Reverse.open_drivers == 0


def test_the_layout_with_the_best_turn_after_a_warm_up_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speeds = {"warm-up only": [9.0, 1.0, 1.0], "first": [0.0, 3.0, 2.0], "best": [0.0, 1.0, 4.0]}
    monkeypatch.setattr(comparison, "speed", lambda driver, _: speeds[driver.name].pop(0))
    layouts: list[Build[list[int]]] = [partial(Reverse, name) for name in list(speeds)]
    assert fastest(layouts, [[1, 2]]) is layouts[2]
    assert Reverse.open_drivers == 0
