"""The command as people run it: a process of its own, a real server."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ..fake_server import FakeServer

COMMAND = [sys.executable, "-m", "seqserve", "generate"]


def pipe(server: FakeServer, lines: bytes, *argv: str) -> subprocess.CompletedProcess[bytes]:
    environ = {**os.environ, "SEQSERVE_TARGET": server.target}
    return subprocess.run(
        [*COMMAND, *argv], input=lines, capture_output=True, env=environ, timeout=60, check=False
    )


def test_texts_in_order(server: FakeServer) -> None:
    texts = ["late 0", *(f"text {number}" for number in range(1, 200)), "grüße"]
    done = pipe(server, b"", "--concurrency", "8", *texts)
    assert done.stdout.decode() == "".join(f"{text.upper()}\n" for text in texts)
    assert (done.returncode, done.stderr) == (0, b"")
    assert 1 < server.most_at_once <= 8


def test_empty_texts_are_answered_and_not_sent(server: FakeServer) -> None:
    done = pipe(server, b"", "a", "", "  ", "b")
    assert done.stdout == b"A\n\n\nB\n"
    assert sorted(request.source for request in server.requests) == ["a", "b"]


def test_empty_lines_stay_empty(server: FakeServer) -> None:
    done = pipe(server, b"a\n\n  \r\nb\r\n")
    assert (done.returncode, done.stdout) == (0, b"A\n\n\nB\n")


def test_a_line_that_fails_is_reported_and_left_empty(server: FakeServer) -> None:
    done = pipe(server, b"a\nfail INVALID_ARGUMENT\n\xff\xfe\nb\n")
    assert done.stdout == b"A\n\n\nB\n"
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "seqserve: line 2: INVALID_ARGUMENT: invalid_argument, says the fake",
        "seqserve: line 3: INVALID_ARGUMENT: source: is not UTF-8: byte 0xFF after 0 characters;"
        " convert it",
        "seqserve: 2 of 4 lines failed: 2-3",
    ]


def test_a_line_is_answered_before_the_next_one_arrives(server: FakeServer) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--target", server.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    for line in (b"first", b"second"):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        assert process.stdout.readline() == line.upper() + b"\n"
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize("argv", [[], ["--file", "-"]])
def test_an_endless_input_ends_with_its_reader(server: FakeServer, argv: list[str]) -> None:
    endless = subprocess.Popen(["yes", "again"], stdout=subprocess.PIPE)
    process = subprocess.Popen(
        [*COMMAND, *argv, "--target", server.target],
        stdin=endless.stdout,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert endless.stdout is not None
    endless.stdout.close()
    assert process.stdout is not None and process.stderr is not None
    assert [process.stdout.readline() for _ in range(50)] == [b"AGAIN\n"] * 50
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(20), errors) == (141, b"")
    endless.wait(20)


# ---- the lines of a file, in one call

BULK = ["--file", "-"]
CUT = "The output may end in a part of the next answer."


def told_at(line: int, name: object) -> str:
    return f"The first {line - 1} lines are answered; `tail -n +{line} {name}` shows the others."


def test_lines_of_a_file_in_order(server: FakeServer, tmp_path: Path) -> None:
    lines = ["late 0", *(f"line {number}" for number in range(1, 400)), "late 400", "grüße"]
    file = tmp_path / "source.txt"
    file.write_text("\n".join(lines), encoding="utf-8")
    done = pipe(server, b"", "--file", str(file), "--concurrency", "8")
    assert done.stdout.decode() == "".join(f"{line.upper()}\n" for line in lines)
    assert (done.returncode, done.stderr) == (0, b"")
    assert server.bulk_calls == 1


def test_lines_that_fail_are_reported_in_their_place(server: FakeServer) -> None:
    done = pipe(server, b"late a\nfail INTERNAL\n\n  \r\n\xff\xfe\nb\n", *BULK)
    assert done.stdout == b"LATE A\n\n\n\n\nB\n"
    assert done.returncode == 1
    assert done.stderr.decode().splitlines() == [
        "seqserve: line 2: INTERNAL: internal, says the fake",
        "seqserve: line 5: INVALID_ARGUMENT: source: is not UTF-8: byte 0xFF after 0 characters;"
        " convert it",
        "seqserve: 2 of 6 lines failed: 2, 5",
    ]


@pytest.mark.parametrize("argv", [[], ["--stream"], BULK])
def test_a_windows_file_stays_one(server: FakeServer, argv: list[str]) -> None:
    done = pipe(server, "\ufeffgrüße\r\n\r\nb\r\n".encode(), *argv)
    assert (done.returncode, done.stdout.decode()) == (0, "GRÜSSE\r\n\r\nB\r\n")


@pytest.mark.parametrize("argv", [[], ["--stream"], BULK])
def test_a_line_over_the_limit_on_bytes_fails_alone(server: FakeServer, argv: list[str]) -> None:
    done = pipe(server, b"a\n" + b"b" * (1 << 20) + b"\nc\n", *argv)
    assert (done.returncode, done.stdout) == (1, b"A\n\nC\n")
    first, summary = done.stderr.decode().splitlines()
    assert "line 2: RESOURCE_EXHAUSTED" in first and "1048576" in first.replace(",", "")
    assert summary == "seqserve: 1 of 3 lines failed: 2"


def test_an_error_that_concerns_every_line_of_a_file_ends_the_run(
    server: FakeServer, tmp_path: Path
) -> None:
    file = tmp_path / "two words.txt"
    file.write_text("a\nfail NOT_FOUND\nb\n")
    for argv, lines, name in (
        (BULK, file.read_bytes(), "INPUT"),
        (["--file", str(file)], b"", f"'{file}'"),
        (["--concurrency", "1"], file.read_bytes(), "INPUT"),
    ):
        done = pipe(server, lines, *argv)
        assert (done.returncode, done.stdout) == (1, b"A\n")
        assert done.stderr.decode().splitlines() == [
            "seqserve: NOT_FOUND: not_found, says the fake",
            f"The first 1 lines are answered; `tail -n +2 {name}` shows the others.",
        ]


@pytest.mark.parametrize("argv", [[], BULK])
def test_a_line_waits_for_a_busy_server(server: FakeServer, argv: list[str]) -> None:
    lines = ["a", "busy 2 b", "later 2 c", "d"]
    done = pipe(server, "\n".join(lines).encode(), *argv)
    assert done.stdout.decode() == "".join(f"{line.upper()}\n" for line in lines)
    assert (done.returncode, done.stderr) == (0, b"")


def test_lines_have_no_deadline_unless_it_is_given(server: FakeServer) -> None:
    for argv in ([], ["--timeout-s", "60"], ["a"]):
        assert pipe(server, b"a\n", *argv).stdout == b"A\n"
    lines_s, limited_s, text_s = server.timeouts_s
    assert text_s <= 30.0 < limited_s <= 60.0 < 1e6 < lines_s


def test_attempts_at_a_line_can_be_limited(server: FakeServer) -> None:
    done = pipe(server, b"a\nlater 2 b\nc\n", "--max-attempts", "2")
    assert (done.returncode, done.stdout) == (1, b"A\n")
    first, *notes = done.stderr.decode().splitlines()
    assert first == "seqserve: UNAVAILABLE: unavailable, says the fake"
    assert "The first 1 lines are answered; `tail -n +2 INPUT` shows the others." in notes


def test_a_line_of_a_pipe_is_answered_before_the_next_one_arrives(server: FakeServer) -> None:
    process = subprocess.Popen(
        [*COMMAND, *BULK, "--target", server.target], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None and process.stdout is not None
    for line in (b"first", b"", b"\xff", b"second"):
        process.stdin.write(line + b"\n")
        process.stdin.flush()
        answer = b"" if line == b"\xff" else line.upper()
        assert process.stdout.readline() == answer + b"\n"
    process.communicate(timeout=20)
    assert process.returncode == 1


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("argv", [[], ["--file", "/dev/stdin"], BULK])
def test_ctrl_c_ends_it_and_tells_where_to_go_on(server: FakeServer, argv: list[str]) -> None:
    process = subprocess.Popen(
        [*COMMAND, *argv, "--target", server.target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"a\nhang\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"A\n"
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, b"")
    name = "/dev/stdin" if "/dev/stdin" in argv else "INPUT"
    assert errors.decode() == f"seqserve: {told_at(2, name)}\n{CUT}\n"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_before_an_answer_ends_it_quietly(server: FakeServer) -> None:
    process = subprocess.Popen(
        [*COMMAND, "--target", server.target], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(b"hang\n")
    process.stdin.flush()
    while not server.requests:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert (process.returncode, errors) == (130, b"")


@pytest.mark.parametrize("argv", [[], ["--stream"], ["--json"]])
def test_a_full_disk_is_told_with_the_lines_that_are_on_it(
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
    whole = out.read_text().count("\n")
    told, *note = done.stderr.decode().splitlines()
    assert (done.returncode, told) == (1, "seqserve: standard output: File too large")
    name = "INPUT" if "--stream" in argv else source
    assert note == ([told_at(whole + 1, name), CUT] if whole else [])


def test_progress_is_shown_in_a_terminal(server: FakeServer) -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*COMMAND, *BULK, "--target", server.target],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    out, _ = process.communicate(b"a\nfail INTERNAL\nb\n", timeout=20)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        shown = terminal.read(1000).decode().split("\r\x1b[K")
    assert (process.returncode, out) == (1, b"A\n\nB\n")
    assert shown[:2] == ["", "seqserve: line 2: INTERNAL: internal, says the fake\r\n"]
    progress, summary, end = shown[-1].split("\r\n")
    assert re.fullmatch(r"seqserve: 3 lines, [\d,]+ a second", progress)
    assert (summary, end) == ("seqserve: 1 of 3 lines failed: 2", "")


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(seqserve: Run) -> Run:
    return partial(seqserve, "generate")


def test_texts(run: Run) -> None:
    assert run("good day", "and night") == (0, "GOOD DAY\nAND NIGHT\n", "")


N_BEST = "GOOD DAY\nGOOD DAY!\nGOOD DAY!!\n"


def test_each_source_is_answered_with_as_many_lines_as_hypotheses(run: Run) -> None:
    status, out, _ = run("--num-hypotheses", "3", "good day", "", "fail INTERNAL", "a")
    assert (status, out) == (1, N_BEST + "\n" * 6 + "A\nA!\nA!!\n")


def test_scores_stand_before_the_text(run: Run) -> None:
    scored = "-0.5000\tGOOD DAY\n-1.5000\tGOOD DAY!\n"
    assert run("--return-scores", "good day", "", "a") == (
        0,
        "-0.5000\tGOOD DAY\n\n-0.5000\tA\n",
        "",
    )
    assert run("--return-scores", "--num-hypotheses", "2", "good day") == (0, scored, "")
    assert run("--no-return-scores", "good day") == (0, "GOOD DAY\n", "")


def test_unmet_terms_are_reported(run: Run) -> None:
    terms = ["--terms", "good=GUT", "--terms", "day=DAY", "--terms", "night=NACHT"]
    reports = "seqserve: text {}: unmet terms: good=GUT, night=NACHT\n"
    expected = (0, "GOOD DAY\n\nDAY\n", reports.format(1) + reports.format(3))
    assert run(*terms, "good day", "", "day") == expected
    assert run(*terms, "--stream", "good day", "", "day") == expected


def test_unmet_terms_are_reported_of_each_hypothesis(run: Run) -> None:
    _, out, err = run("--num-hypotheses", "2", "--terms", "day=TAG", "--terms", "!=!", "good day")
    assert out == "GOOD DAY\nGOOD DAY!\n"
    assert err == (
        "seqserve: text 1: unmet terms of hypothesis 1: day=TAG, !=!\n"
        "seqserve: text 1: unmet terms of hypothesis 2: day=TAG\n"
    )


def test_json_has_unmet_terms(run: Run) -> None:
    status, out, err = run("--json", "--terms", "day=TAG", "good day")
    [best] = objects(out)[0]["hypotheses"]
    assert (status, best["unmet_terms"], err) == (0, [["day", "TAG"]], "")


def test_options_reach_the_server(run: Run, server: FakeServer) -> None:
    run("a", "--model", "m", "--model-version", "3")
    run("b", "--max-decoding-length", "9", "--min-decoding-length", "0", "--stream")
    first, second = server.requests
    assert (first.model, first.version, first.HasField("options")) == ("m", 3, False)
    assert second.options.max_decoding_length == 9
    assert second.options.HasField("min_decoding_length")


def test_an_option_that_is_wrong_ends_the_run(run: Run, server: FakeServer) -> None:
    status, out, err = run("--beam-size", str(1 << 31), "a", "b")
    assert (status, out, server.requests) == (1, "", [])
    assert err == (
        "seqserve: INVALID_ARGUMENT: beam_size: 2147483648 is not a whole number that fits 32 "
        "bits\n"
    )


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_lines_of_a_text_in_segments_are_kept(run: Run, form: list[str]) -> None:
    segmented = ["--segmentation", "sentences", *form]
    assert run(*segmented, "two\n\nlines", "one") == (0, "TWO\n\nLINES\nONE\n", "")


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_answers_are_one_line_each(run: Run, form: list[str]) -> None:
    assert run(*form, "two\nlines", "", "one") == (0, "TWO LINES\n\nONE\n", "")
    assert run(*form, "two\rlines", "") == (0, "TWO LINES\n\n", "")


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_a_text_that_fails(run: Run, form: list[str]) -> None:
    status, out, err = run(*form, "a", "fail INTERNAL", "b")
    assert (status, out) == (1, "A\n\nB\n")
    assert err == "seqserve: text 2: INTERNAL: internal, says the fake\n"


@pytest.mark.parametrize("form", [[], ["--stream"]])
@pytest.mark.parametrize("code", ["NOT_FOUND", "UNAUTHENTICATED", "PERMISSION_DENIED"])
def test_an_error_that_concerns_every_line_ends_the_run(
    run: Run, form: list[str], code: str
) -> None:
    status, out, err = run(*form, "--concurrency", "1", "a", f"fail {code}", "b")
    assert (status, out) == (1, "A\n")
    assert err.splitlines()[0] == f"seqserve: {code}: {code.lower()}, says the fake"


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_a_source_that_the_model_cannot_read_is_warned_of(run: Run, form: list[str]) -> None:
    status, out, err = run(*form, "a", "so 🙂")
    assert (status, out) == (0, "A\nSO 🙂\n")
    assert err == (
        "seqserve: text 2: the model probably cannot read it: letters or symbols that it does not"
        " know\n"
    )


def test_json_has_the_warnings(run: Run) -> None:
    status, out, err = run("--json", "so 🙂")
    assert (status, err) == (0, "")
    assert objects(out)[0]["source_warnings"] == ["unknown_characters"]


def test_verbose(run: Run) -> None:
    report = (
        "seqserve: text 1: capitals/2, 3 tokens in, 2 out, stop eos, score -1.500; queue 1.0 ms, "
        "encode 2.0 ms, decode 3.0 ms, first token 4.0 ms, total 6.0 ms\n"
    )
    assert run("--verbose", "good day") == (0, "GOOD DAY\n", report)
    assert run("--verbose", "--stream", "good day") == (0, "GOOD DAY\n", report)
    report = report.replace(", score -1.500", "")
    assert run("--verbose", "--no-return-scores", "good day") == (0, "GOOD DAY\n", report)


def test_a_score_that_was_not_computed_is_null(run: Run) -> None:
    _, out, _ = run("--json", "--no-return-scores", "good day")
    (hypothesis,) = objects(out)[0]["hypotheses"]
    assert (hypothesis["score"], hypothesis["normalized_score"]) == (None, None)


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_json(run: Run) -> None:
    status, out, _ = run("--json", "grüße", "", "fail INVALID_ARGUMENT")
    answered, empty, failed = objects(out)
    assert status == 1
    assert "GRÜSSE" in out
    assert (answered["text"], answered["model"], answered["version"]) == ("GRÜSSE", "capitals", 2)
    assert answered["hypotheses"][0]["stop_reason"] == "eos"
    assert answered["timings"]["total_ms"] == 6.0
    assert empty == {"text": ""}
    assert failed["error"]["code"] == "INVALID_ARGUMENT"
    assert failed["error"]["field"] == "source"


@pytest.mark.parametrize("form", [[], ["--stream"]])
def test_json_has_what_was_asked_for(run: Run, form: list[str]) -> None:
    asked = ["--num-hypotheses", "2", "--return-token-scores", "--return-attention"]
    status, out, _ = run("--json", *form, *asked, "--return-top-tokens", "1", "good day")
    answered = objects(out)[-1]
    assert status == 0
    assert answered["source_pieces"] == ["good", "day", "</s>"]
    best, second = answered["hypotheses"]
    assert (best["score"], second["score"], second["normalized_score"]) == (-1.5, -2.5, -1.5)
    # NaN, for a token of a prefix; JSON has none.
    assert best["token_scores"] == [None, -0.5, -0.5]
    assert best["top_tokens"] == [[{"token": "T0", "token_id": 0, "score": -0.5}]] * 3
    assert best["attention"] == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_json_of_a_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "source.txt"
    file.write_text("grüße\n\nfail INVALID_ARGUMENT\n", encoding="utf-8")
    status, out, err = run("--json", "--verbose", "--file", str(file))
    answered, empty, failed = objects(out)
    assert (status, answered["text"], empty) == (1, "GRÜSSE", {"text": ""})
    assert failed["error"]["code"] == "INVALID_ARGUMENT"
    assert [line.partition(":")[2][:8] for line in err.splitlines()] == [
        " line 1:",
        " line 3:",
        " 1 of 3 ",
    ]


def test_json_of_a_stream(run: Run) -> None:
    status, out, _ = run("--json", "--stream", "ab")
    first, second, last = objects(out)
    assert status == 0
    assert first == {"piece": "A", "token_ids": [0]}
    assert second == {"piece": "B", "token_ids": [1]}
    assert last["text"] == "AB"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--concurrency", "0"], "--concurrency: 0 is less than 1"),
        (["--timeout-s", "soon"], "--timeout-s: 'soon' is not a number"),
        (["--target", "nowhere"], "target: 'nowhere' is not host:port"),
        (["--top-p", "1.5"], "--top-p: '1.5' is not above 0 and at most 1"),
        (["--stream", "--return-scores"], "--stream: shows one text before its score is there"),
        (["--stream", "--num-hypotheses", "2"], "--stream: shows one text"),
        (["--return-token-scores"], "--return-token-scores: needs --json"),
        (["--return-top-tokens", "2"], "--return-top-tokens: needs --json"),
        (["--return-attention"], "--return-attention: needs --json"),
        (["--terms", "tea"], "--terms: 'tea' has no = between two texts"),
        (["--prefix-bias-beta", "1.5"], "--prefix-bias-beta: '1.5' is not at least 0 and below 1"),
        (["--file", "-"], "--file: does not go with TEXTS; give one of the two"),
        (["--file", "-", "--stream"], "--file: does not go with --stream; give one of the two"),
    ],
)
def test_wrong_usage(run: Run, argv: list[str], message: str) -> None:
    status, out, err = run(*argv, "text")
    assert (status, out) == (2, "")
    assert err.startswith(f"seqserve: {message}")


def test_a_missing_file(run: Run, tmp_path: Path) -> None:
    status, out, err = run("--file", str(tmp_path / "none"))
    assert (status, out) == (2, "")
    assert err == f"seqserve: --file: {tmp_path}/none: No such file or directory\n"
