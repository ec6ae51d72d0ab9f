import math
import statistics
import subprocess
import sys
from functools import partial
from itertools import islice, pairwise
from typing import Any

import pytest

from seqserve.errors import OptionError
from seqserve.load.arrivals import (
    Arrival,
    draw_for,
    moments_of,
    random_arrivals,
    texts_of,
    traced_arrivals,
    within,
)
from seqserve.load.load import Load
from seqserve.processes import Share

SOURCES = ["one", "two", "three"]


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_gaps_have_the_mean_of_the_rate_and_vary_by_burstiness(burstiness: float) -> None:
    arrivals = islice(random_arrivals(100.0, SOURCES, 1, burstiness), 20_000)
    gaps = [later.due_s - earlier.due_s for earlier, later in pairwise(arrivals)]
    assert statistics.fmean(gaps) == pytest.approx(0.01, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.01 / math.sqrt(burstiness), rel=0.05)


def test_all_at_once_and_by_a_trace() -> None:
    arrivals = within(random_arrivals(math.inf, SOURCES, 1), count=3)
    assert [arrival.due_s for arrival in arrivals] == [0.0, 0.0, 0.0]
    assert [*traced_arrivals([0.0, 0.5], ["a"], 1)] == [Arrival(0.0, "a"), Arrival(0.5, "a")]
    assert moments_of(["1700000000.5\n", "\n", "1700000000.5", "1700000002"], "f") == [0, 0, 1.5]


def test_same_seed_same_arrivals() -> None:
    first, same, other = (
        [*within(random_arrivals(50.0, SOURCES, seed), seconds=5.0)] for seed in ("a", "a", "b")
    )
    assert first == same != other
    assert first[0].due_s > 0.0 and first[-1].due_s < 5.0
    assert {arrival.source for arrival in first} == {*SOURCES}


def test_sources_of_a_time_or_a_count_and_shares_of_a_number() -> None:
    first, second = (draw_for(SOURCES, 30.0, 1) for _ in range(2))
    assert [*islice(first, 20)] == [*islice(second, 20)]
    assert list(draw_for(["a"], 0.0, 1)) == []
    assert list(draw_for(["a"], None, 1, 2)) == ["a", "a"]
    assert [Share(index, 3).of(8) for index in range(3)] == [3, 3, 2]


def test_what_ends_a_load() -> None:
    load = Load(sources=SOURCES, rate_per_s=10.0, requests=5)
    assert load.total == 5 and not load.is_closed
    assert len([*load.arrivals()]) == 5
    timed = Load(sources=SOURCES, rate_per_s=10.0, requests=5, seconds=9.0)
    assert timed.total is None
    traced = Load(sources=SOURCES, trace_s=[0.0, 1.0, 2.0], requests=2)
    assert traced.total == 2
    assert [arrival.due_s for arrival in traced.arrivals()] == [0.0, 1.0]
    assert Load(sources=SOURCES, rate_per_s=math.inf, in_flight=2).is_closed


def test_load_needs_no_torch_and_no_server() -> None:
    program = (
        "import seqserve.command.load, sys;"
        "sys.exit(bool({'torch', 'numpy', 'seqserve_server'} & {*sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


texts = partial(texts_of, is_json=True)


def test_lines_and_json() -> None:
    assert texts_of(["a b\n", "\n", " c "], "f", is_json=False) == ["a b", "c"]
    assert texts(['{"prompt": "a", "output_tokens": 3}\n', '{"source": "b"}'], "f") == ["a", "b"]


@pytest.mark.parametrize(
    ("read", "lines", "reason"),
    [
        (texts, ["\n"], "f: has no text"),
        (texts, ['{"prompt": "a"}', "b"], "f: line 2 is not JSON"),
        (texts, ['{"prompt": " "}'], "f: line 1 has no text in 'prompt' or 'source'"),
        (texts, ["[]"], "f: line 1 has no text in 'prompt' or 'source'"),
        (moments_of, [], "f: has no moment"),
        (moments_of, ["1", "x"], "f: line 2: 'x' is not a number of seconds"),
        (moments_of, ["2", "1"], "f: line 2: 1 is not in order"),
        (moments_of, ["nan"], "f: line 1: nan is not in order"),
        (moments_of, ["1", "inf"], "f: line 2: inf is not in order"),
    ],
)
def test_texts_and_moments_that_are_none(read: Any, lines: list[str], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        read(lines, "f")
