"""`seqserve corpus`, killed in its midst and started again: each text once, in its order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.process import MODELS, PATIENCE_S, members, until

from seqserve_server import Offline

LINES = [f"Tom has {number} books." if number % 7 else "" for number in range(1200)]
TOO_LONG = 600

pytestmark = pytest.mark.slow


def start(corpus: Path, out: Path) -> subprocess.Popen[str]:
    flags = ("--model-repository", str(MODELS), "--model", "en-de", "--segmentation", "none")
    return subprocess.Popen(
        # Several processes and few slots, so that it takes a while and answers are out of order.
        [
            *(sys.executable, "-m", "seqserve", "corpus", str(corpus), str(out), *flags),
            *("--workers", "2", "--processes", "2", "--slots", "2"),
        ],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def break_off(corpus: Path, out: Path, least: int, victim: Callable[[int], int]) -> tuple[int, str]:
    """Kills a process once so many texts are answered; returns what the command then says."""
    run = start(corpus, out)
    until(lambda: answered(out) >= least or run.poll() is not None)
    assert run.poll() is None
    os.kill(victim(run.pid), signal.SIGKILL)
    _, error = run.communicate(timeout=PATIENCE_S)
    until(lambda: not members(run.pid))
    assert not out.exists()
    return run.returncode, error


def answered(out: Path) -> int:
    journal = out.with_name(f".{out.name}.seqserve-journal")
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def engine(command: int) -> int:
    """Finds one of the processes that multiprocessing has started."""
    return next(
        pid
        for pid in members(command)
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    )


def test_each_text_has_one_answer_whatever_is_killed(tmp_path: Path) -> None:
    corpus, out = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = LINES.copy()
    lines[TOO_LONG] = "word " * 500
    corpus.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    status, _ = break_off(corpus, out, 100, lambda command: command)
    assert status == -signal.SIGKILL
    status, error = break_off(corpus, out, 300, engine)
    assert status == 1
    assert "has ended by signal 9; the same command goes on where this one has stopped" in error

    before = answered(out)
    run = start(corpus, out)
    _, error = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 1
    assert error.splitlines() == [
        f"seqserve: {before:,} of {len(lines):,} lines are answered already",
        f"seqserve: 1 of {len(lines):,} texts failed: see {out}.failed",
    ]
    assert {*os.listdir(tmp_path)} == {"in.txt", "out.txt", "out.txt.failed"}
    listed = out.with_name("out.txt.failed").read_text(encoding="utf-8")
    assert listed.startswith(f"{TOO_LONG + 1}\tsource: has 501 tokens")
    with Offline("en-de", repository=MODELS) as offline:
        asked = [line for line in LINES if line]
        texts = iter([result.text for result in offline.generate(asked, segmentation="none")])
    expected = [next(texts) if line else "" for line in LINES]
    expected[TOO_LONG] = ""
    assert out.read_text(encoding="utf-8").splitlines() == expected
