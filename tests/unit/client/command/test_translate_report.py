import json
from pathlib import Path
from typing import Any

import pytest

from seqserve.command.writers import DocumentWriter
from seqserve.documents.passage import Passage
from seqserve.responses import result_of
from seqserve.v1 import generation_pb2, model_pb2

from .. import fake_server
from .conftest import Run


def test_each_file_has_a_report(seqserve: Run, tmp_path: Path, reports: list[str]) -> None:
    page, notes = tmp_path / "a.md", tmp_path / "b.txt"
    page.write_text("# title\n\n12\n\n```\ncode\n```\n\nA\n")
    notes.write_text("a\nfail INTERNAL\n")
    told = tmp_path / "report.json"
    argv = [page, notes, "-o", tmp_path / "out", "--report", told]
    assert seqserve("translate", *argv)[0] == 1
    assert reports == [
        f"seqserve: {page}: 2 passages translated, 2 copied (no letter 1, code 1), 0 left\n",
        f"seqserve: {notes}: 1 passage translated, 0 copied, 1 left\n",
    ]
    left = {"line": 2, "text": "fail INTERNAL", "reason": "INTERNAL: internal, says the fake"}
    copied = {"no letter": 1, "code": 1}
    unwarned: dict[str, object] = {"warned": 0, "texts_warned": []}
    assert json.loads(told.read_text())["files"] == [
        {"file": str(page), "translated": 2, "unchanged": 1, "copied": copied, "left": 0}
        | {"texts_left": [], **unwarned},
        {"file": str(notes), "translated": 1, "unchanged": 0, "copied": {}, "left": 1}
        | {"texts_left": [left], **unwarned},
    ]


def test_passages_that_no_model_reads(translate: Run, tmp_path: Path, reports: list[str]) -> None:
    status, out, err = translate("a.md", "a\n\nмоя *земля*\n")
    assert (status, out) == (1, "A\n\nмоя *земля*\n")
    assert "line 3: the model does not read its script, or has no answer" in err
    assert reports == [f"seqserve: {tmp_path}/a.md: 1 passage translated, 0 copied, 1 left\n"]


def test_passages_whose_numbers_differ_or_whose_translation_is_cut_are_listed(
    translate: Run, tmp_path: Path, reports: list[str]
) -> None:
    told = tmp_path / "report.json"
    status, _, err = translate("a.txt", "room 5\nroom №7 ✂\n", "--report", told)
    assert (status, err.count("line 2: numbers differ: 7 -> nothing")) == (0, 1)
    assert "line 2: cut short: length" in err
    assert reports[0].endswith("a.txt: 2 passages translated, 0 copied, 0 left, 1 warned of\n")
    [facts] = json.loads(told.read_text())["files"]
    reason = "numbers differ: 7 -> nothing; cut short: length"
    warned = {"line": 2, "text": "room №7 ✂", "reason": reason}
    assert (facts["warned"], facts["texts_warned"]) == (1, [warned])


def test_a_text_that_no_reader_reads_gives_status_1(translate: Run) -> None:
    status, out, err = translate("a.md", "some\n\n> <p>\n> text\n> </p>\n")
    assert (status, out) == (1, "SOME\n\n> <p>\n> text\n> </p>\n")
    assert "a.md: line 3: is HTML within a quote, which is not read" in err


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--target-language", "it"], "it"), ([], "de"), (["--model", "missing"], "en")],
)
def test_the_language_of_a_page_is_that_of_the_call_or_the_model(
    translate: Run, monkeypatch: pytest.MonkeyPatch, options: list[str], code: str
) -> None:
    languages: Any = {"source_languages": ["en"], "target_languages": ["de"]}
    model = model_pb2.Model(name="capitals", version=2, **languages)
    monkeypatch.setattr(fake_server, "MODELS", [model])
    shown = translate("a.html", '<html lang="en"><p>a</p></html>', *options)[1]
    assert shown == f'<html lang="{code}"><p>A</p></html>'


@pytest.mark.parametrize("text", [" ", "."])
def test_a_translation_without_a_letter_leaves_its_text(text: str) -> None:
    written: list[str] = []
    response = generation_pb2.GenerateResponse(hypotheses=[generation_pb2.Hypothesis(text=text)])
    writer = DocumentWriter(label="line", encoding="utf-8", output=written.append)
    writer.write(Passage(line=1, before="<p>", source="a", text="a"), result_of(response))
    assert written == ["<p>a"]
    assert "its translation has no letter" in str(writer.totals.facts())


def test_a_file_that_cannot_be_read_has_a_report(translate: Run, tmp_path: Path) -> None:
    told = tmp_path / "report.json"
    assert translate("a.json", '{"a": "b", ', "--report", told)[0] == 2
    assert json.loads(told.read_text())["files"][0]["translated"] == 0
