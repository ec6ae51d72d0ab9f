"""``seqserve generate``: in this process, and in one of its own where pipes and signals matter."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.process import until

from ..fake_server import FakeServer
from .conftest import Run

COMMAND = [sys.executable, "-m", "seqserve", "generate"]
CUT = "The output may end in a part of the next answer."
FORMS = pytest.mark.parametrize("form", [[], ["--stream"]], ids=["whole", "stream"])


@pytest.fixture
def run(seqserve: Run) -> Run:
    return partial(seqserve, "generate")


@pytest.fixture
def run_lines(run: Run, tmp_path: Path) -> Run:
    """Writes bytes to a file and answers its lines."""

    def answer(lines: bytes, *argv: str) -> tuple[int, str, str]:
        file = tmp_path / "two words.txt"
        file.write_bytes(lines)
        return run("--file", file, *argv)

    return answer


def start(server: FakeServer, *argv: str, **streams: Any) -> Any:
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")} | streams
    return subprocess.Popen([*COMMAND, *argv, "--target", server.target], **pipes)


def where_to_go_on(line: int, name: object) -> str:
    first = "line is" if line == 2 else f"{line - 1} lines are"
    return f"The first {first} answered; `tail -n +{line} {name}` shows the others."


def test_texts_in_order(run: Run, server: FakeServer) -> None:
    texts = ["late 0", *(f"text {number}" for number in range(1, 200)), "grüße"]
    expected = "".join(f"{text.upper()}\n" for text in texts)
    assert run("--concurrency", "8", *texts) == (0, expected, "")
    assert 1 < server.most_at_once <= 8


def test_empty_texts_are_answered_and_not_sent(run: Run, server: FakeServer) -> None:
    assert run("a", "", "  ", "b") == (0, "A\n\n\nB\n", "")
    assert sorted(request.source for request in server.requests) == ["a", "b"]


def test_lines_in_order_in_one_call(run_lines: Run, server: FakeServer) -> None:
    lines = ["late 0", *(f"line {number}" for number in range(1, 400)), "late 400", "grüße"]
    expected = "".join(f"{line.upper()}\n" for line in lines)
    assert run_lines("\n".join(lines).encode(), "--concurrency", "8") == (0, expected, "")
    assert server.bulk_calls == 1


def test_lines_that_fail_are_reported_in_their_place(run_lines: Run) -> None:
    status, out, err = run_lines(b"late a\nfail INTERNAL\n\n  \r\n\xff\xfe\nb\n")
    assert (status, out) == (1, "LATE A\n\n\n\n\nB\n")
    assert err.splitlines() == [
        "seqserve: line 2: INTERNAL: internal, says the fake",
        "seqserve: line 5: INVALID_ARGUMENT: source: is not UTF-8: byte 0xFF after 0 characters;"
        " convert it",
        "seqserve: 2 of 6 lines failed: 2, 5",
    ]


def test_a_windows_file_stays_one_and_a_nul_character_fails_alone(run_lines: Run) -> None:
    lines = "\ufeffgrüße\r\n\r\nb\r\n".encode()
    assert run_lines(lines) == (0, "GRÜSSE\r\n\r\nB\r\n", "")
    status, out, err = run_lines(b"a\nb \0\nc\n")
    assert (status, out) == (1, "A\n\nC\n")
    assert "line 2: INVALID_ARGUMENT: source: has a NUL character" in err


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("mark", ["\ufeff", ""])
def test_other_encodings_are_refused(run_lines: Run, encoding: str, mark: str) -> None:
    status, out, err = run_lines(f"{mark}a\nb\n".encode(encoding))
    name = (encoding[:-3] if mark else encoding[:-3] + encoding[-2:]).upper()
    assert (status, out) == (2, "")
    assert f"two words.txt: is {name}; convert it, as with `iconv -f {name} -t UTF-8`" in err


def test_an_error_that_concerns_every_line_ends_the_run(run_lines: Run, tmp_path: Path) -> None:
    status, out, err = run_lines(b"a\nfail NOT_FOUND\nb\n")
    assert (status, out) == (1, "A\n")
    assert err.splitlines() == [
        "seqserve: NOT_FOUND: not_found, says the fake",
        where_to_go_on(2, f"'{tmp_path / 'two words.txt'}'"),
    ]


def test_lines_have_no_deadline_of_their_own(run: Run, run_lines: Run, server: FakeServer) -> None:
    for answer in (run_lines(b"a\n"), run_lines(b"a\n", "--timeout-s", "60"), run("a")):
        assert answer == (0, "A\n", "")
    lines_s, limited_s, text_s = server.timeouts_s
    # Two clocks: the server's may be a moment behind.
    assert text_s <= 31.0 < limited_s <= 61.0 < 1e6 < lines_s


@pytest.mark.parametrize("argv", [[], ["--file", "-"], ["--stream"]])
def test_lines_of_standard_input(server: FakeServer, argv: list[str]) -> None:
    """Those that fail, a Windows file, an error that ends the run: as lines of a file."""
    big = b"b" * (1 << 20)
    out, err = start(server, *argv).communicate(b"a\r\n\xff\r\n" + big + b"\r\nb\n", 60)
    reports = [line.partition(": ")[2][:14] for line in err.decode().splitlines()]
    assert (out, reports) == (
        b"A\r\n\r\n\r\nB\r\n",
        ["line 2: INVALI", "line 3: RESOUR", "2 of 4 lines f"],
    )
    process = start(server, *argv, "--concurrency", "1")
    out, err = process.communicate(b"a\nfail NOT_FOUND\nb\n", 60)
    assert (process.returncode, out) == (1, b"A\n")
    assert err.decode().splitlines()[1] == where_to_go_on(2, "INPUT")


@pytest.mark.parametrize("argv", [[], ["--file", "-"]])
def test_a_line_is_answered_before_the_next_arrives(server: FakeServer, argv: list[str]) -> None:
    process = start(server, *argv, stderr=None)
    for line, answer in ((b"first", b"FIRST"), (b"", b""), (b"\xff", b""), (b"second", b"SECOND")):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == answer + b"\n"
    process.communicate(timeout=60)
    assert process.returncode == 1


@pytest.mark.parametrize("argv", [[], ["--file", "-"]])
def test_an_endless_input_ends_with_its_reader(server: FakeServer, argv: list[str]) -> None:
    endless: Any = subprocess.Popen(["yes", "again"], stdout=subprocess.PIPE)
    process = start(server, *argv, stdin=endless.stdout)
    endless.stdout.close()
    assert [process.stdout.readline() for _ in range(50)] == [b"AGAIN\n"] * 50
    process.stdout.close()
    with process.stderr as errors:
        assert (errors.read(), process.wait(60)) == (b"", 141)
    endless.wait(60)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("lines", "argv", "name"),
    [
        (b"a\nhang\n", [], "INPUT"),
        (b"a\nhang\n", ["--file", "/dev/stdin"], "/dev/stdin"),
        # It waits for a line.
        (b"a\n", [], "INPUT"),
    ],
)
def test_ctrl_c_ends_it_and_says_where_to_go_on(
    server: FakeServer, lines: bytes, argv: list[str], name: str
) -> None:
    process = start(server, *argv)
    process.stdin.write(lines)
    process.stdin.flush()
    assert process.stdout.readline() == b"A\n"
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, b"")
    assert errors.decode() == f"seqserve: {where_to_go_on(2, name)}\n{CUT}\n"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_before_an_answer_ends_it_quietly(server: FakeServer) -> None:
    process = start(server)
    process.stdin.write(b"hang\n")
    process.stdin.flush()
    until(lambda: bool(server.requests))
    process.send_signal(signal.SIGINT)
    assert (process.communicate(timeout=60)[1], process.returncode) == (b"", 130)


@pytest.mark.parametrize("argv", [[], ["--stream"]])
def test_a_full_disk_is_reported_with_the_lines_that_are_on_it(
    server: FakeServer, tmp_path: Path, argv: list[str]
) -> None:
    """A limit on the size of a file stands for the disk: two blocks, 1 KiB."""
    source, out = tmp_path / "source.txt", tmp_path / "out.txt"
    source.write_text("\n".join(["a" * 300] * 9))
    command = shlex.join([*COMMAND, *argv, "--file", str(source), "--target", server.target])
    if "--stream" in argv:
        command = command.replace("--file", "<")
    limited = f"ulimit -f 2; exec {command} > {shlex.quote(str(out))}"
    done = subprocess.run(["sh", "-c", limited], capture_output=True, timeout=60, check=False)
    written = out.read_text().count("\n")
    report, *note = done.stderr.decode().splitlines()
    assert (done.returncode, report) == (1, "seqserve: standard output: File too large")
    name = "INPUT" if "--stream" in argv else source
    assert note == ([where_to_go_on(written + 1, name), CUT] if written else [])


def test_progress_is_shown_in_a_terminal(server: FakeServer) -> None:
    ours, theirs = os.openpty()
    environ = {**os.environ, "TERM": "xterm"}
    process = start(server, "--file", "-", stderr=theirs, env=environ)
    out, _ = process.communicate(b"a\nfail INTERNAL\nb\n", timeout=60)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        shown = terminal.read(1 << 16).decode().split("\r\x1b[K")
    assert (process.returncode, out) == (1, b"A\n\nB\n")
    # On a slow machine, what is done so far is shown before it.
    assert shown.count("seqserve: line 2: INTERNAL: internal, says the fake\r\n") == 1
    progress, summary, end = shown[-1].split("\r\n")
    assert re.fullmatch(r"seqserve: 3 lines, [\d,]+ a second", progress)
    assert (summary, end) == ("seqserve: 1 of 3 lines failed: 2", "")


N_BEST = "GOOD DAY\nGOOD DAY!\nGOOD DAY!!\n"


def test_each_source_is_answered_with_as_many_lines_as_hypotheses(run: Run) -> None:
    status, out, _ = run("--num-hypotheses", "3", "good day", "", "fail INTERNAL", "a")
    assert (status, out) == (1, N_BEST + "\n" * 6 + "A\nA!\nA!!\n")


def test_scores_stand_before_the_text(run: Run) -> None:
    scored = "-0.5000\tGOOD DAY\n-1.5000\tGOOD DAY!\n"
    in_order = "-0.5000\tGOOD DAY\n\n-0.5000\tA\n"
    assert run("--return-scores", "good day", "", "a") == (0, in_order, "")
    assert run("--return-scores", "--num-hypotheses", "2", "good day") == (0, scored, "")
    assert run("--no-return-scores", "good day") == (0, "GOOD DAY\n", "")


def test_unmet_terms_are_reported(run: Run) -> None:
    terms = ["--terms", "good=GUT", "--terms", "day=DAY", "--terms", "night=NACHT"]
    reports = "seqserve: text {}: unmet terms: good=GUT, night=NACHT\n"
    expected = (0, "GOOD DAY\n\nDAY\n", reports.format(1) + reports.format(3))
    assert run(*terms, "good day", "", "day") == expected
    assert run(*terms, "--stream", "good day", "", "day") == expected
    # Of each hypothesis.
    _, out, err = run("--num-hypotheses", "2", "--terms", "day=TAG", "--terms", "!=!", "good day")
    assert out == "GOOD DAY\nGOOD DAY!\n"
    assert err == (
        "seqserve: text 1: hypothesis 1: unmet terms: day=TAG, !=!\n"
        "seqserve: text 1: hypothesis 2: unmet terms: day=TAG\n"
    )


@FORMS
def test_answers_are_one_line_each_but_for_texts_in_segments(run: Run, form: list[str]) -> None:
    assert run(*form, "two\nlines", "", "one") == (0, "TWO LINES\n\nONE\n", "")
    assert run(*form, "two\rlines", "") == (0, "TWO LINES\n\n", "")
    segmented = ["--segmentation", "sentences", *form]
    assert run(*segmented, "two\n\nlines", "one") == (0, "TWO\n\nLINES\nONE\n", "")


@FORMS
def test_a_text_that_fails_or_that_the_model_cannot_read(run: Run, form: list[str]) -> None:
    failed = "seqserve: text 2: INTERNAL: internal, says the fake\n"
    assert run(*form, "a", "fail INTERNAL", "b") == (1, "A\n\nB\n", failed)
    unread = "the model probably cannot read it: letters or symbols that it does not know"
    assert run(*form, "a", "so 🙂") == (0, "A\nSO 🙂\n", f"seqserve: text 2: {unread}\n")


@FORMS
@pytest.mark.parametrize("code", ["NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_an_error_of_every_text_ends_the_run(run: Run, form: list[str], code: str) -> None:
    status, out, err = run(*form, "--concurrency", "1", "a", f"fail {code}", "b")
    assert (status, out) == (1, "A\n")
    assert err.splitlines()[0] == f"seqserve: {code}: {code.lower()}, says the fake"


def test_the_name_of_a_file_as_a_text_is_warned_of(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "source.txt"
    path.write_text("It rains.\n")
    status, out, err = run(str(path))
    assert (status, out) == (0, f"{path}\n".upper())
    assert err.startswith("seqserve: text 1: is the name of a file") and "--file" in err


@pytest.mark.parametrize("form", [[], ["--stream"], ["--json"]])
def test_sentences_that_go_as_one_text_are_warned_of_once(run: Run, form: list[str]) -> None:
    texts = ["It rains.", "It rains. We stay.", "It rains. We stay here."]
    status, _, err = run(*form, "--segmentation", "none", *texts)
    assert status == 0
    assert err.startswith("seqserve: text 2: has several sentences, which --segmentation none")
    assert err.count("\n") == 1
    assert run(*form, *texts)[2] == "", "the server divides as its model recommends"


def test_numbers_that_differ_are_reported(run: Run) -> None:
    warned = "seqserve: text 1: numbers differ: 7 -> nothing\n"
    assert run("room №7") == (0, "ROOM №7\n", warned)
    [warning] = objects(run("--json", "room №7")[1])[0]["hypotheses"][0]["warnings"]
    assert (warning["kind"], warning["source_begin"]) == ("numbers_differ", 6)


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_an_answer_cut_or_garbled_is_reported(run: Run, run_lines: Run, form: list[str]) -> None:
    faults = "{0} 1: cut short: length\n{0} 2: garbled: some letters of the source\n"
    texts = ["snip ✂", "the \ufffd"]
    expected = (0, "SNIP ✂\nTHE \ufffd\n", faults.format("seqserve: text"))
    assert run(*form, *texts) == expected
    assert run_lines("\n".join([*texts, ""]).encode()) == (
        *expected[:2],
        faults.format("seqserve: line"),
    )


def test_faults_that_many_lines_share_are_summed_up(run_lines: Run, run: Run) -> None:
    lines = ["snip ✂", "a", *(["snip ✂"] * 30), "the \ufffd", *(["so 🙂"] * 2), *(["room №7"] * 2)]
    status, out, err = run_lines("\n".join([*lines, ""]).encode())
    assert (status, out.count("\n")) == (0, 37)
    differ = "numbers differ: 7 -> nothing"
    unread = "the model probably cannot read it: letters or symbols that it does not know"
    assert err.splitlines() == [
        f"seqserve: line 36: {differ}",
        f"seqserve: line 37: {differ}",
        "seqserve: lines 1, 3-32: cut short: length",
        "seqserve: line 33: garbled: some letters of the source",
        f"seqserve: lines 34-35: {unread}",
    ]
    assert run("snip ✂", "snip ✂")[2] == "seqserve: texts 1-2: cut short: length\n"


def test_verbose(run: Run) -> None:
    report = (
        "seqserve: text 1: capitals/2, 3 tokens in, 2 out, stop eos, score -1.500; queue 1.0 ms, "
        "encode 2.0 ms, decode 3.0 ms, first token 4.0 ms, total 6.0 ms\n"
    )
    assert run("--verbose", "good day") == (0, "GOOD DAY\n", report)
    assert run("--verbose", "--stream", "good day") == (0, "GOOD DAY\n", report)
    report = report.replace(", score -1.500", "")
    assert run("--verbose", "--no-return-scores", "good day") == (0, "GOOD DAY\n", report)


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_json(run: Run, run_lines: Run) -> None:
    texts = ["grüße", "", "fail INVALID_ARGUMENT"]
    lines = run_lines("\n".join(texts).encode(), "--json", "--verbose")
    for status, out, _ in (run("--json", *texts), lines):
        answered, empty, failed = objects(out)
        assert (status, empty) == (1, {"text": ""}) and "GRÜSSE" in out
        facts = ("GRÜSSE", "capitals", 2)
        assert (answered["text"], answered["model"], answered["version"]) == facts
        assert answered["hypotheses"][0]["stop_reason"] == "eos"
        assert answered["timings"]["total_ms"] == 6.0
        assert failed["error"]["code"] == "INVALID_ARGUMENT"
        assert failed["error"]["field"] == "source"
    reports = [line.partition(": ")[2][:7] for line in lines[2].splitlines()]
    assert reports == ["line 1:", "line 3:", "1 of 3 "]


@FORMS
def test_json_has_what_was_requested(run: Run, form: list[str]) -> None:
    wanted = ["--num-hypotheses", "2", "--return-token-scores", "--return-attention"]
    status, out, _ = run("--json", *form, *wanted, "--return-top-tokens", "1", "good day")
    answered = objects(out)[-1]
    assert status == 0
    assert answered["source_pieces"] == ["good", "day", "</s>"]
    best, second = answered["hypotheses"]
    assert (best["score"], second["score"], second["normalized_score"]) == (-1.5, -2.5, -1.5)
    # NaN, for a token of a prefix; JSON has none.
    assert best["token_scores"] == [None, -0.5, -0.5]
    assert best["top_tokens"] == [[{"token": "T0", "token_id": 0, "score": -0.5}]] * 3
    assert best["attention"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_json_of_a_stream(run: Run) -> None:
    status, out, _ = run("--json", "--stream", "ab")
    *pieces, last = objects(out)
    assert (status, last["text"]) == (0, "AB")
    assert pieces == [{"piece": "A", "token_ids": [0]}, {"piece": "B", "token_ids": [1]}]


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--concurrency", "0"], "--concurrency: 0 is less than 1"),
        (["--stream", "--return-scores"], "--stream: shows one text before its score is there"),
        (["--stream", "--num-hypotheses", "2"], "--stream: shows one text"),
        (["--return-token-scores"], "--return-token-scores: needs --json"),
        (["--return-top-tokens", "2"], "--return-top-tokens: needs --json"),
        (["--return-attention"], "--return-attention: needs --json"),
        (["--terms", "tea"], "--terms: 'tea' has no = between two texts"),
        (["--beam", "5"], "unknown option --beam (did you mean --beam-size?)"),
        (["--server", "a:1"], "unknown option --server (did you mean --target?)"),
        (["--ca", "a.pem"], "unknown option --ca ("),
        (["--language", "de"], "unknown option --language (did you mean --source-language?)"),
        (["--file", "-"], "--file: does not go with TEXTS; give one of the two"),
        (["--file", "-", "--stream"], "--file: does not go with --stream; give one of the two"),
    ],
)
def test_wrong_usage(run: Run, argv: list[str], message: str) -> None:
    status, out, err = run(*argv, "text")
    assert (status, out) == (2, "")
    assert err.startswith(f"seqserve: {message}")
