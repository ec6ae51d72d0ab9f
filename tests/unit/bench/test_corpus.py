import sys
from pathlib import Path

import pytest
from bench.scenarios import corpus
from bench.scenarios.corpus import Command, Peer, lines_of_text

_COPY = "import sys; open(sys.argv[2], 'w').write(open(sys.argv[1]).read(){})"


def python(change: str = "") -> Command:
    return lambda lines, out: [sys.executable, "-c", _COPY.format(change), str(lines), str(out)]


def test_lines_are_of_two_kinds_and_seldom_the_same() -> None:
    lines = lines_of_text(300)
    assert len(lines) == 300
    assert len(set(lines)) > 270
    words = [len(line.split()) for line in lines]
    assert max(words[0::3] + words[1::3]) < min(words[2::3])


def test_engines_are_compared_on_as_much_as_each_got(tmp_path: Path) -> None:
    peers = [
        Peer("ours", python()),
        Peer("other", python(".replace('b', 'x')")),
        Peer("slow", python(), 2),
    ]
    report = [
        {
            "name": "a model",
            "lines": 4,
            "peers": corpus._compare(peers, ["a", "b", "c", "d"], tmp_path, 2),
        }
    ]
    assert [peer["equal_share"] for peer in report[0]["peers"]] == [1.0, 0.75, 1.0]
    assert (tmp_path / "lines.txt").read_text() == "a\nb\n", "the slow one gets a half"
    ours = report[0]["peers"][0]
    assert ours["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert 0 < ours["cpu_s"]["low"] <= ours["cpu_s"]["high"]
    [table] = corpus.tables(report)
    assert [row[0] for row in table.rows] == ["ours", "other", "slow"]
    assert table.head[0] == "a model; 4 lines, beams of 4"


def test_engine_that_fails_ends_the_comparison(tmp_path: Path) -> None:
    peer = Peer("broken", lambda lines, out: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(SystemExit, match="broken ended with 3"):
        corpus._compare([peer], ["a"], tmp_path, 1)
