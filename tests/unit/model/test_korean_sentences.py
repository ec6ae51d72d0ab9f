"""The everyday sentences of the Korean models: how they are made, and what is not in them."""

from __future__ import annotations

import gzip
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[3] / "model" / "korean"
LEVELS = range(4)


@pytest.fixture
def hangul(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    return importlib.import_module("hangul")


def pairs_of(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def test_command_writes_the_file_that_is_here(tmp_path: Path) -> None:
    made = tmp_path / "made.gz"
    command = [sys.executable, "-B", str(FOLDER / "everyday.py"), "--out", str(made)]
    subprocess.run(command, check=True)
    assert pairs_of(made) == pairs_of(FOLDER / "everyday-eng-kor.tsv.gz")


def test_sentences_that_are_shown_are_not_learnt() -> None:
    shown = (FOLDER / "shown.tsv").read_text(encoding="utf-8").splitlines()
    barred = {sentence for line in shown for sentence in line.split("\t")}
    assert len(barred) == 2 * len(shown)
    pairs = pairs_of(FOLDER / "everyday-eng-kor.tsv.gz")
    assert len({tuple(pair) for pair in pairs}) == len(pairs) == 30_000
    assert not barred & {sentence for pair in pairs for sentence in pair}


@pytest.mark.parametrize(
    ("form", "forms", "present", "past"),
    [
        ("마시다", "마셔", ["마신다", "마셔", "마셔요", "마십니다"], "마셨다"),
        ("먹다", "먹어", ["먹는다", "먹어", "먹어요", "먹습니다"], "먹었다"),
        ("살다", "살아", ["산다", "살아", "살아요", "삽니다"], "살았다"),
        ("돕다", "도와,도우", ["돕는다", "도와", "도와요", "돕습니다"], "도왔다"),
    ],
)
def test_verbs_are_conjugated(
    hangul: Any, form: str, forms: str, present: list[str], past: str
) -> None:
    verb = hangul.Verb.of(form, forms, is_adjective=False)
    assert [verb.present(level) for level in LEVELS] == present
    assert verb.past(hangul.PLAIN) == past


def test_stems_before_l_and_requests(hangul: Any) -> None:
    def verb(form: str, forms: str) -> Any:
        return hangul.Verb.of(form, forms, is_adjective=False)

    assert verb("듣다", "들어,들으").before_l == "들을"
    assert verb("열다", "열어").before_l == "열"
    assert verb("열다", "열어").open_base + "세요" == "여세요"
