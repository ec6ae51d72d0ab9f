from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.unit.server.corpus.upper_pool import UpperPool

from seqserve.errors import OptionError
from seqserve_server.corpus import processes
from seqserve_server.corpus.command import main
from seqserve_server.corpus.engine import EngineSettings


class NoProcesses(UpperPool):
    def __init__(self, settings: list[object]) -> None:
        super().__init__()
        self.settings = settings
        type(self).last = self

    last: NoProcesses

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def pool(monkeypatch: pytest.MonkeyPatch) -> type[NoProcesses]:
    monkeypatch.setattr(processes, "ProcessPool", NoProcesses)
    return NoProcesses


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("one\nwhy?\nthree\n", encoding="utf-8")
    return path


def test_a_corpus_goes_in_and_its_answers_come_out(
    corpus: Path, tiny_artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = corpus.with_name("out.txt")
    status = main([str(corpus), str(out), "--model", str(tiny_artifact), "--workers", "3"])
    assert status == 1
    assert out.read_text(encoding="utf-8") == "ONE\n\nTHREE\n"
    assert capsys.readouterr().err == f"seqserve: 1 of 3 texts failed: see {out}.failed\n"
    assert [each.workers for each in NoProcesses.last.settings] == [1, 1, 1]  # type: ignore[attr-defined]


def test_workers_are_divided_among_the_processes(corpus: Path, tiny_artifact: Path) -> None:
    arguments = [str(corpus), str(corpus.with_name("out")), "--model", str(tiny_artifact)]
    main([*arguments, "--workers", "5", "--processes", "2", "--beam-size", "2", "--slots", "8"])
    settings: list[EngineSettings] = NoProcesses.last.settings  # type: ignore[assignment]
    assert [(each.workers, each.slots) for each in settings] == [(3, 8), (2, 8)]
    assert settings[0].template.options.beam_size == 2


def test_objects_have_their_scores(tmp_path: Path, tiny_artifact: Path) -> None:
    corpus, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    corpus.write_text('{"words": "one"}\n', encoding="utf-8")
    flags = ("--field", "words", "--into", "said", "--return-scores")
    assert main([str(corpus), str(out), "--model", str(tiny_artifact), *flags]) == 0
    answered = json.loads(out.read_text(encoding="utf-8"))
    assert answered == {"words": "one", "said": "ONE", "said_score": -0.5}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--num-hypotheses", "2"], "--num-hypotheses: a text of a corpus has one answer"),
        (["--priority", "low"], "--priority: is for calls of a server"),
        (["--return-attention"], "--return-attention: is for calls of a server"),
        (["--field", "text"], "--field: a line of text has no fields; see --format"),
        (["--return-scores"], "--return-scores: a line of text has no fields"),
        (
            ["--processes", "3", "--workers", "2"],
            "--processes: 3 need a worker each, and there are 2",
        ),
        (["--source-language", "auto"], "--source-language: auto needs a server"),
        (["--beam-size", "0"], "--beam-size: '0' is not at least 1"),
        (
            ["--model", "nope", "--model-repository", "/nowhere"],
            "/nowhere is not a folder of models",
        ),
    ],
)
def test_what_does_not_go_together_is_named(
    corpus: Path, tiny_artifact: Path, flags: list[str], message: str
) -> None:
    model = [] if "--model" in flags else ["--model", str(tiny_artifact)]
    with pytest.raises(OptionError, match=message):
        main([str(corpus), str(corpus.with_name("out")), *model, *flags])


@pytest.mark.parametrize(
    ("corpus_name", "out", "message"),
    [
        ("nothing", "out", r"CORPUS: .*/nothing: there is no such file"),
        (".", "out", r"CORPUS: .* is not a regular file"),
        ("in.txt", "out.parquet", r"OUT: .*/out\.parquet is named as parquet, but has the"),
        ("a.csv", "out.csv", r"CORPUS: .*/a\.csv is no plain text: `seqserve tr"),
        ("in.txt", "in.txt", r"OUT: .*in\.txt would be overwritten"),
        ("in.txt", "x" * 240, r"^OUT: .*/x+: its journal"),
        ("in.txt", "/dev/null", r"^OUT: /dev/null: is not a regular file"),
        ("out.failed", "out", r"OUT: .*out\.failed would be overwritten"),
    ],
)
def test_files_that_are_none_are_named(
    corpus: Path, tiny_artifact: Path, corpus_name: str, out: str, message: str
) -> None:
    folder = corpus.parent
    (folder / "a.csv").touch()
    (folder / "out.failed").write_text("1\ta text\n", encoding="utf-8")
    with pytest.raises(OptionError, match=message):
        main([str(folder / corpus_name), str(folder / out), "--model", str(tiny_artifact)])


@pytest.mark.parametrize(
    ("name", "flags", "package", "message"),
    [
        ("in.parquet", [], "pyarrow", r"Parquet needs 'pyarrow', .* 'seqserve\[server,parquet\]'"),
        ("in.txt", ["--ray", "auto"], "ray", r"--ray: needs 'ray', .* 'seqserve\[ray\]'"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    corpus: Path,
    tiny_artifact: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    flags: list[str],
    package: str,
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    for module in ("parquet", "ray_pool"):
        monkeypatch.delitem(sys.modules, f"seqserve_server.corpus.{module}", raising=False)
    file, out = corpus.with_name(name), corpus.with_name("out")
    file.touch()
    with pytest.raises(OptionError, match=message):
        main([str(file), str(out), "--model", str(tiny_artifact), *flags])
