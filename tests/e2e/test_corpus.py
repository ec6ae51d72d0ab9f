"""`seqserve corpus`, killed in its midst and started again: each text once, in its order."""

import os
import signal
from pathlib import Path

import pytest
from tests.support.corpus_run import CorpusRun
from tests.support.process import MODELS, members, until

from seqserve_server import Offline

# More chunks than are in flight at once, so that some are left when the engines are killed.
LINES = [f"Tom has {number} books." if number % 7 else "" for number in range(1400)]
TOO_LONG = 1200

pytestmark = pytest.mark.slow


# Several processes and few slots, so that answers are out of order.
SLOWLY = ("--workers", "2", "--processes", "2", "--slots", "2")


def break_off(corpus: Path, out: Path, victim: str) -> CorpusRun:
    """A run in which the command or its engines are killed once some more texts are answered."""
    run = CorpusRun(corpus, out, *SLOWLY, program=("tests.support.corpus_loss", victim))
    run.end()
    until(lambda: not members(run.process.pid))
    assert not out.exists()
    return run


def test_each_text_has_one_answer_whatever_is_killed(tmp_path: Path) -> None:
    corpus, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = LINES.copy()
    lines[TOO_LONG] = "word " * 500
    corpus.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run = break_off(corpus, out, "command")
    assert run.process.returncode == -signal.SIGKILL
    before = run.answered
    assert before > 0
    run = break_off(corpus, out, "engines")
    assert run.process.returncode == 1
    assert before < run.answered < len(lines)
    ended = "has ended by signal 9; the same command goes on where this one has stopped"
    assert any(ended in line for line in run.said)

    before = run.answered
    run = CorpusRun(corpus, out, *SLOWLY)
    assert run.end() == 1
    assert [line.rstrip("\n") for line in run.said] == [
        f"seqserve: {before:,} of {len(lines):,} lines are answered already",
        f"seqserve: 1 of {len(lines):,} texts failed: see {out}.failed",
    ]
    assert {*os.listdir(tmp_path)} == {"in.txt", "out.txt", "out.txt.failed"}
    listed = out.with_name("out.txt.failed").read_text(encoding="utf-8")
    assert listed.startswith(f"{TOO_LONG + 1}\tsource: has 501 tokens")
    with Offline("en-de/4", repository=MODELS) as offline:
        asked = [line for line in LINES if line]
        texts = iter([result.text for result in offline.generate(asked, segmentation="none")])
    expected = [next(texts) if line else "" for line in LINES]
    expected[TOO_LONG] = ""
    assert out.read_text(encoding="utf-8").splitlines() == expected
