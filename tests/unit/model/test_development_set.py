"""The development set of English → German, and the script that scores a model on it."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from seqserve_model.data import sentence_key
from seqserve_model.made.language import rows

FOLDER = Path(__file__).parents[3] / "model" / "german"


@pytest.fixture
def score(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module("score")
    del sys.modules["score"]


@pytest.fixture
def lines(score: Any) -> list[Any]:
    text = (FOLDER / "development.tsv").read_text(encoding="utf-8")
    return [score.Line.of(line) for line in text.splitlines()]


def test_every_category_has_a_dozen_lines_and_no_sentence_comes_twice(lines: list[Any]) -> None:
    assert len(lines) == len({sentence_key(line.source) for line in lines}) == 200
    assert min(Counter(line.category for line in lines).values()) >= 12


def test_what_must_be_copied_stands_in_the_reference(score: Any, lines: list[Any]) -> None:
    spans = [(ways, line.reference) for line in lines for ways in line.copied]
    assert len(spans) > 100
    assert [span for span in spans if not score.is_copied(*span)] == []


def test_no_sentence_is_a_phrase_that_is_trained_on(lines: list[Any]) -> None:
    phrases = {
        sentence_key(side)
        for pairs in rows("phrases.tsv", "en", "de").values()
        for pair in pairs
        for side in pair
    }
    sentences = {sentence_key(side) for line in lines for side in (line.source, line.reference)}
    assert not sentences & phrases


@pytest.mark.parametrize(
    ("ways", "text", "is_copied"),
    [
        (["4,20"], "Es kostet 4,20 €.", True),
        (["4,20"], "Es kostet 14,20 €.", False),
        (["17"], "Frage 175", False),
        (["Hakeem"], "Hakeems Auto", True),
        (["Hamburg"], "ein Hamburger", False),
        (["11:20", "11.20"], "um 11.20 Uhr", True),
        (["{name}"], "Hallo {name}!", True),
    ],
)
def test_a_span_is_copied_where_it_stands_alone(
    score: Any, ways: list[str], text: str, *, is_copied: bool
) -> None:
    assert score.is_copied(ways, text) is is_copied


def test_scores_are_printed_by_category(score: Any, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        score.Line("I am Ann.", "Ich bin Ann.", "names", [["Ann"]]),
        score.Line("I am Bo.", "Ich bin Bo.", "names", [["Bo"]]),
        score.Line("Hello.", "Hallo.", "greetings"),
    ]
    score.print_scores(lines, ["Ich bin Ann.", "Ich bin Po.", "Hallo."])
    printed = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert printed[0][:2] == ["names", "2"] and printed[0][3:] == ["50.0", "%"]
    assert printed[1] == ["greetings", "1", "100.00"]
    assert printed[2][:2] == ["all", "3"]


def test_a_sentence_typed_otherwise_is_compared_with_itself(
    score: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def translate(sources: Sequence[str]) -> list[str]:
        return ["Wie?" if source.endswith("?") else source for source in sources]

    lines = [score.Line("Hello!", "Hallo!", "greetings"), score.Line("A.", "A.", "names")]
    score.print_retyped(lines, translate(["Hello!", "A."]), translate)
    shares = {
        line.rsplit(maxsplit=3)[0]: line.split()[-2]
        for line in capsys.readouterr().out.splitlines()[2:]
    }
    assert shares == {
        "nothing": "100.0",
        ".": "100.0",
        "!": "100.0",
        "?": "0.0",
        "lower case": "100.0",
    }
