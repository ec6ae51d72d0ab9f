import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from tests.support.process import until

from seqserve.command.journal import Journal
from seqserve.command.translate import TranslateOptions
from seqserve.documents.passage import Translation
from seqserve.options import flag_of

from ..fake_server import FakeServer
from .conftest import Run

MARKDOWN = "# title\n\nsome *text*\n\n```\ncode\n```\n"
TRANSLATED = "# TITLE\n\nSOME *TEXT*\n\n```\ncode\n```\n"
JOURNAL = ".b.txt.seqserve-journal"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.md"
    path.write_text(MARKDOWN)
    return path


def test_to_standard_output(seqserve: Run, file: Path) -> None:
    assert seqserve("translate", file) == (0, TRANSLATED, "")


def test_passages_are_divided_into_sentences(seqserve: Run, file: Path, server: FakeServer) -> None:
    seqserve("translate", file, "--beam-size", "3")
    assert [request.source for request in server.requests] == ["title", "some text"]
    assert {request.options.segmentation for request in server.requests} == {"sentences"}
    assert {request.options.beam_size for request in server.requests} == {3}


def test_what_has_no_letter_is_not_sent(translate: Run, server: FakeServer) -> None:
    page = "<td>102</td><td>$5.99</td><p>♪ ♪</p><p>so</p><p><code>x</code>, <code>y</code></p>"
    assert translate("a.html", page) == (0, page.replace("so", "SO"), "")
    assert [request.source for request in server.requests] == ["so"]


def test_a_file_of_an_unknown_format_is_refused_before_any_is_translated(
    seqserve: Run, file: Path, tmp_path: Path, server: FakeServer
) -> None:
    other, out = tmp_path / "a.toml", tmp_path / "out"
    other.write_text('a = "b"\n')
    status, _, err = seqserve("translate", file, other, "-o", out)
    assert status == 2 and "a.toml: .toml is not a known format; --format text" in err
    assert not server.requests and not out.exists()
    assert seqserve("translate", other, "--format", "text") == (0, 'A = "B"\n', "")


def test_files_need_a_folder(seqserve: Run, file: Path, tmp_path: Path, server: FakeServer) -> None:
    out = tmp_path / "out.md"
    status, _, err = seqserve("translate", file, file, "-o", out)
    assert status == 2 and "out.md is named as a file, and several files need a folder" in err
    assert not server.requests and not out.exists()
    other = tmp_path / "b.txt"
    other.write_text("b\n")
    assert seqserve("translate", file, other, "-o", tmp_path / "out")[0] == 0
    assert (tmp_path / "out" / "a.md").read_text() == TRANSLATED
    assert (tmp_path / "out" / "b.txt").read_text() == "B\n"


@pytest.mark.parametrize("name", ["out.docx", "out.vtt", "out.html"])
def test_names_and_formats(translate: Run, tmp_path: Path, server: FakeServer, name: str) -> None:
    out = tmp_path / name
    status, _, err = translate("a.txt", "one\n", "-o", out)
    assert status == 2
    assert f"{name} is named as {out.suffix[1:]}, and {tmp_path}/a.txt is taken" in err
    assert not server.requests and not out.exists()
    assert translate("a.txt", "one\n", "--format", "text", "-o", out) == (0, "", "")
    assert out.read_text() == "ONE\n"


@pytest.mark.parametrize("flag", ["-o", "--out"])
def test_to_a_file_of_the_same_kind(translate: Run, tmp_path: Path, flag: str) -> None:
    out = tmp_path / "new" / "b.txt"
    source = "\ufeffgrün\r\n\r\nx".encode("utf-16-le")
    assert translate("a.txt", source, flag, out) == (0, "", "")
    assert out.read_bytes() == "\ufeffGRÜN\r\n\r\nX".encode("utf-16-le")
    assert names(out.parent) == ["b.txt"]


def test_other_files_stay(seqserve: Run, file: Path, tmp_path: Path, server: FakeServer) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    status, _, err = seqserve("translate", file, "-o", pipe)
    assert status == 2 and f"--out: {pipe}: is not a regular file; leave --out out to" in err
    assert pipe.is_fifo() and not server.requests and names(tmp_path) == ["a.md", "pipe"]


def test_a_document_not_in_its_format_is_refused(translate: Run, tmp_path: Path) -> None:
    out = tmp_path / "b.json"
    out.write_text("before")
    refused = f"seqserve: {tmp_path}/a.json: line 2 is not JSON: Expecting ':' delimiter\n"
    assert translate("a.json", '{"a": "b",\n "c" "d"}\n', "-o", out) == (2, "", refused)
    assert out.read_text() == "before" and names(tmp_path) == ["a.json", "b.json"]


def test_half_a_character_fails_alone(translate: Run, tmp_path: Path) -> None:
    lines = '{"text": "a"}\n{"text": "It\\nrains. \\ud800"}\n{"text": "b"}\n'
    out, expected = tmp_path / "b.jsonl", lines.replace('a"', 'A"').replace('"b"', '"B"')
    status, shown, err = translate("a.jsonl", lines, "--field", "text")
    assert (status, shown) == (1, expected) and "a.jsonl: line 2: " in err
    assert "source: holds" in err
    assert translate("a.jsonl", lines, "--field", "text", "-o", out)[0] == 1
    assert out.read_text() == expected


def test_passages_that_fail_stay_and_are_reported(translate: Run, tmp_path: Path) -> None:
    status, out, err = translate("a.txt", "a\n\nfail INTERNAL\nb\nfail INTERNAL\n")
    assert (status, out) == (1, "A\n\nfail INTERNAL\nB\nfail INTERNAL\n")
    assert err.splitlines() == [
        f"seqserve: {tmp_path}/a.txt: line 3: INTERNAL: internal, says the fake",
        f"seqserve: {tmp_path}/a.txt: line 5: INTERNAL: internal, says the fake",
        f"seqserve: {tmp_path}/a.txt: 2 of 4 passages failed: lines 3, 5",
    ]
    # A line with several is told once.
    err = translate("a.json", '{"a": "fail INTERNAL", "b": "fail INTERNAL"}')[2]
    assert err.endswith("a.json: 2 of 2 passages failed: line 1\n")


def test_what_the_encoding_lacks_is_reported(translate: Run, tmp_path: Path) -> None:
    # The capital of ÿ is not in Latin-1.
    source, out = "a\nÿ\n".encode("latin-1"), tmp_path / "out.txt"
    status, _, err = translate("a.txt", source, "--encoding", "latin-1", "-o", out)
    assert status == 1 and "line 2: its translation has 'Ÿ', not in latin-1" in err
    assert out.read_bytes() == "A\nÿ\n".encode("latin-1")


@pytest.mark.parametrize("text", ["plain", "caf\xe9 \xff"])
def test_a_page_keeps_the_encoding_that_it_declares(
    seqserve: Run, tmp_path: Path, text: str
) -> None:
    path, out = tmp_path / "a.html", tmp_path / "b.html"
    page = "<meta charset=iso-8859-7><p>{}</p>"
    path.write_bytes(page.format(text).encode("iso8859-7", "xmlcharrefreplace"))
    assert seqserve("translate", path, "-o", out) == (0, "", "")
    assert out.read_bytes() == page.format(text.upper()).encode("iso8859-7", "xmlcharrefreplace")


def test_a_section_of_cdata_has_no_references(seqserve: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "a.xml", tmp_path / "b.xml"
    begin, end = "<?xml version='1.0' encoding='latin-1'?><resources><string><![CDATA[", "]]>"
    source = f"{begin}\xff{end}</string>\n<string>\xe9</string></resources>"
    path.write_text(source, "latin-1")
    status, _, err = seqserve("translate", path, "--format", "android", "-o", out)
    assert status == 1 and "line 1: its translation has 'Ÿ', not in iso8859-1" in err
    assert out.read_text("latin-1") == source.replace("\xe9", "\xc9")


TAGGED = "<p>so <b>red</b></p>\n<p>plain</p>\n"


def test_only_tags_need_an_alignment(translate: Run, server: FakeServer) -> None:
    assert translate("a.html", TAGGED) == (0, "<p>SO <b>RED</b></p>\n<p>PLAIN</p>\n", "")
    aligned = {each.source: each.options.return_alignment for each in server.requests}
    assert aligned == {"so red": True, "plain": False}


@pytest.mark.parametrize(
    ("text", "argv"),
    [
        (TAGGED, ["--model", "blind"]),
        # Refused as a whole.
        (TAGGED.replace("so", "fail FAILED_PRECONDITION"), []),
    ],
)
def test_without_an_alignment_a_passage_is_divided_at_its_tags(
    translate: Run, server: FakeServer, text: str, argv: list[str]
) -> None:
    status, out, err = translate("a.html", text, *argv)
    assert "<b>RED</b></p>\n<p>PLAIN</p>" in out
    assert [each.source for each in server.requests].count("red") == 1
    # A part of the divided passage may fail, too.
    assert (status, "line 1" in err) == ((1, True) if "fail" in text else (0, False))


def test_a_broken_run_places_tags_again(translate: Run, tmp_path: Path, server: FakeServer) -> None:
    argv = ["-o", tmp_path / "b.html", "--concurrency", "1"]
    # The same text without tags is known without an alignment.
    assert translate("a.html", f"<p>so red</p>{TAGGED}<p>fail NOT_FOUND</p>", *argv)[0] == 1
    server.requests.clear()
    assert translate("a.html", TAGGED, *argv) == (0, "", "")
    translated = "<p>SO <b>RED</b></p>\n<p>PLAIN</p>\n"
    assert (tmp_path / "b.html").read_text() == translated and not server.requests


def test_a_broken_run_goes_on(translate: Run, tmp_path: Path, server: FakeServer) -> None:
    out = tmp_path / "b.txt"
    argv = ["-o", out, "--concurrency", "1"]
    # More than are sent at once: passages that are known wait for no other.
    known = [f"line {number}" for number in range(50)]
    status, _, err = translate("a.txt", "\n".join([*known, "fail NOT_FOUND", "three"]), *argv)
    assert status == 1 and err.startswith("seqserve: NOT_FOUND")
    assert names(tmp_path) == [JOURNAL, "a.txt"]
    server.requests.clear()
    lines = [*known, "again", *known, "three"]
    assert translate("a.txt", "\n".join(lines), *argv) == (0, "", "")
    assert out.read_text().splitlines() == [line.upper() for line in lines]
    assert [request.source for request in server.requests] == ["again", "three"]
    assert names(tmp_path) == ["a.txt", "b.txt"]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_says_how_to_go_on(tmp_path: Path, server: FakeServer) -> None:
    path, out = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("one\nhang\n")
    argv = ["translate", "--target", server.target, path, "-o", out]
    process = subprocess.Popen([sys.executable, "-m", "seqserve", *argv], stderr=subprocess.PIPE)
    journal = tmp_path / JOURNAL
    until(lambda: journal.is_file() and journal.stat().st_size > 0)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors.decode() == (
        f"seqserve: {journal} keeps what is done; the same command goes on from there\n"
    )


@pytest.mark.parametrize("text", ["Dear diary\n", "", "[]\n"])
def test_files_beside_the_output_stay(seqserve: Run, file: Path, tmp_path: Path, text: str) -> None:
    others = [tmp_path / f"out.md.{suffix}" for suffix in ("journal", "part")]
    for other in others:
        other.write_text(text)
    assert seqserve("translate", file, "-o", tmp_path / "out.md") == (0, "", "")
    assert [other.read_text() for other in others] == [text, text]


def test_what_is_no_journal(seqserve: Run, file: Path, tmp_path: Path, server: FakeServer) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    journal, argv = tmp_path / ".b.md.seqserve-journal", ["translate", str(file), "-o"]
    for make, reason in (
        (os.mkfifo, "Not a regular file"),
        (lambda path: path.symlink_to(mine), "Too many levels of symbolic links"),
    ):
        make(journal)
        status, _, err = seqserve(*argv, tmp_path / "b.md")
        assert status == 2 and f"b.md: its journal {journal.name}: {reason}" in err
        journal.unlink()
        # Under another name it is the user's.
        old = tmp_path / "b.txt.journal"
        make(old)
        assert seqserve(*argv, tmp_path / "b.md") == (0, "", "")
        assert old.is_fifo() or old.is_symlink()
        old.unlink()
    assert mine.read_text() == "mine"


def test_a_damaged_journal_is_reported_in_one_sentence(translate: Run, tmp_path: Path) -> None:
    out, journal = tmp_path / "b.txt", tmp_path / JOURNAL
    argv = ["-o", out, "--concurrency", "1"]
    translate("a.txt", "one\ntwo\nfail NOT_FOUND\n", *argv)
    head, line, *_ = journal.read_text().splitlines()
    journal.write_text("\n".join([head, line, '["00", "x", [[1e999, 0, 0, 0]]]', ""]))
    status, _, err = translate("a.txt", "one\ntwo\n", *argv)
    assert status == 0 and err.startswith(f"seqserve: the journal of {out}: line 3 is damaged; ")
    assert out.read_text() == "ONE\nTWO\n"


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_full_disk_is_told_in_a_sentence(server: FakeServer, tmp_path: Path, blocks: int) -> None:
    """A limit on the size of files stands for the disk, in blocks of 512 bytes."""
    path, out = tmp_path / "a.txt", tmp_path / "b.txt"
    path.write_text("\n".join("a" * 300 + str(number) for number in range(9)))
    out.write_text("before")
    command = [sys.executable, "-m", "seqserve", "translate", "--target", server.target]
    limited = f"ulimit -f {blocks}; exec {shlex.join([*command, str(path), '-o', str(out)])}"
    done = subprocess.run(["sh", "-c", limited], capture_output=True, timeout=60, check=False)
    [report] = done.stderr.decode().splitlines()
    assert (done.returncode, out.read_text()) == (1, "before")
    assert report.startswith("seqserve: ") and report.endswith(": File too large")
    assert set(names(tmp_path)) <= {"a.txt", "b.txt", JOURNAL}
    # With room again, the same command goes on.
    assert subprocess.run([*command, str(path), "-o", str(out)], timeout=60).returncode == 0
    assert out.read_text() == path.read_text().upper()


def test_standard_output_that_is_full_is_reported(server: FakeServer, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(f"\ufeff{'a' * 100_000}".encode("utf-16-le"))
    command = [sys.executable, "-m", "seqserve", "translate", "--target", server.target, str(path)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    report = b"seqserve: standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (1, report)


def test_two_runs_at_once(seqserve: Run, file: Path, tmp_path: Path, server: FakeServer) -> None:
    out = tmp_path / "out.md"
    argv = ["translate", file, "-o", out]
    with Journal.beside(out, {}, label="") as other:
        other.add("some", Translation("text"))
        report = f"seqserve: --out: {out}: is being written by another run\n"
        assert seqserve(*argv) == (2, "", report)
    assert not server.requests and not out.exists()
    assert seqserve(*argv) == (0, "", "")
    assert out.read_text() == TRANSLATED


def test_the_help_names_only_options_that_the_command_has(
    seqserve: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        seqserve("translate", "--help")
    shown = capsys.readouterr().out
    assert "`seqserve generate --help` explains them" in shown
    named = set(re.findall(r"--[a-z-]*[a-z]", re.sub(r"`.*?`", "", shown, flags=re.S)))
    own = {flag_of(field.name) for field in fields(TranslateOptions)}
    assert {"--out", "--beam-size"} <= named
    assert {flag.replace("--no-", "--") for flag in named} - {"--help", "--tls-"} <= own


def test_an_option_that_the_help_leaves_out(seqserve: Run, file: Path, server: FakeServer) -> None:
    assert seqserve("translate", file, "--length-penalty", "0.5")[0] == 0
    assert {request.options.length_penalty for request in server.requests} == {0.5}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["{a}", "{a}"], "--out: several files need a folder"),
        (["{a}", "-o", "{a}"], "would be overwritten"),
        (["{a}", "{a}", "-o", "{folder}"], "would be overwritten"),
        (["{folder}/none"], "none: No such file or directory\n"),
        (["Hello world."], "Hello world.: No such file or directory; `seqserve generate` takes"),
        (["{a}", "--format", "pdf"], "--format: 'pdf' is not one of text, markdown, html"),
        (["{a}", "--num-hypotheses", "2"], "--num-hypotheses: a document has one translation"),
    ],
)
def test_wrong_usage(
    seqserve: Run, file: Path, tmp_path: Path, argv: list[str], message: str
) -> None:
    filled = [word.format(a=file, folder=tmp_path) for word in argv]
    status, out, err = seqserve("translate", *filled)
    assert (status, out) == (2, "")
    assert message in err
    assert file.read_text() == MARKDOWN
