import json
import math
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.process import until

from seqserve.command.load import load_of
from seqserve.command.load_options import Backend, LoadOptions
from seqserve.command.main import main
from seqserve.errors import OptionError
from seqserve.load import rate_search
from seqserve.load.http_caller import HttpForm

from ..fake_server import PATIENCE_S, FakeServer
from .conftest import Run

Load = Callable[..., dict[str, Any]]
LIBRETRANSLATE: dict[str, Any] = {"backend": Backend.LIBRETRANSLATE, "target_language": "de"}


@pytest.fixture
def load(seqserve: Run) -> Load:
    """Runs a load that goes well; returns its result."""

    def run(*argv: str) -> dict[str, Any]:
        status, out, err = seqserve("load", "--num-warmups", "0", "--json", *argv)
        assert (status, err) == (0, "")
        facts: dict[str, Any] = json.loads(out)
        return facts

    return run


def texts(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_a_closed_loop(load: Load, server: FakeServer) -> None:
    facts = load("--num-prompts", "20", "--max-concurrency", "3", "--beam-size", "2")
    assert (facts["completed"], facts["failed"], facts["request_rate"]) == (20, 0, None)
    assert facts["options"] == {"beam_size": 2}
    # One more before, whose error would say why no load can be sent.
    assert len(server.requests) == 21
    assert server.most_at_once <= 3
    assert all(request.options.beam_size == 2 for request in server.requests)
    assert not any(request.options.HasField("seed") for request in server.requests)


def test_an_open_loop_of_streams(load: Load, tmp_path: Path) -> None:
    path = texts(tmp_path, "a b c", "d e f")
    arguments = ("--request-rate", "200", "--num-prompts", "10", "--dataset-path", path)
    facts = load(*arguments, "--stream", "--goodput", "ttft:60000 e2el:60000", "--seed", "5")
    assert (facts["completed"], facts["total_output_tokens"]) == (10, 30)
    assert facts["good_share"] == 1.0
    for name in ("ttft", "tpot", "itl", "e2el"):
        assert isinstance(facts[f"p99_{name}_ms"], float)


def test_all_requests_at_once_after_warm_ups(seqserve: Run, server: FakeServer) -> None:
    arguments = ("--request-rate", "inf", "--num-prompts", "4", "--num-warmups", "7")
    status, out, err = seqserve("load", *arguments)
    assert (status, err, len(server.requests)) == (0, "", 1 + 7 + 4)
    assert "open loop, all requests at once" in out and "answered   4" in out


def test_a_trace(load: Load, tmp_path: Path) -> None:
    path = tmp_path / "moments"
    path.write_text("100\n100.01\n100.02\n")
    facts = load("--trace", str(path))
    assert (facts["completed"], facts["trace"]) == (3, str(path))


def test_errors_by_kind_and_refusals(seqserve: Run, tmp_path: Path, server: FakeServer) -> None:
    path = texts(tmp_path, "good", "fail INTERNAL", "busy 1000 times")
    arguments = ("--dataset-path", path, "--num-prompts", "60", "--num-warmups", "0")
    status, out, _ = seqserve("load", *arguments, "--save-result", tmp_path / "r.json")
    facts = json.loads((tmp_path / "r.json").read_text())
    assert status == 0
    assert facts["error_counts"].keys() == {"INTERNAL", "RESOURCE_EXHAUSTED"}
    assert facts["refused"] == facts["error_counts"]["RESOURCE_EXHAUSTED"]
    assert facts["completed"] + facts["failed"] == 60
    assert "resource_exhausted, says the fake" in out
    # Nothing is sent again.
    assert len(server.requests) == 61


def test_the_call_before_the_load_tells_why_none_can_be_sent(seqserve: Run, tmp_path: Path) -> None:
    path = texts(tmp_path, "cancelled 2 times")
    arguments = ("--dataset-path", path, "--num-prompts", "1", "--num-warmups", "0")
    status, out, err = seqserve("load", *arguments, "--max-attempts", "1")
    assert (status, out) == (1, "")
    assert "CANCELLED: cancelled, says the fake" in err


def test_a_server_that_is_away(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "--target", "localhost:1", "--connect-timeout-s", "0"]) == 1
    assert "Is a server running there?" in capsys.readouterr().err
    assert main(["load", "--target", "localhost:1", "--backend", "http"]) == 1
    assert "no answer from localhost:1" in capsys.readouterr().err


def test_files(seqserve: Run, tmp_path: Path) -> None:
    kept, page = tmp_path / "kept.json", tmp_path / "page.html"
    arguments = ["--num-prompts", "5", "--save-result", str(kept), "--save-detailed"]
    status, out, _ = seqserve("load", *arguments, "--html", page)
    assert status == 0
    facts = json.loads(kept.read_text())
    assert len(facts["e2els"]) == len(facts["start_times"]) == 5
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert "whole answer" in out
    assert main(["load", "--compare", str(kept), str(kept)]) == 0


def test_place_that_takes_no_file(seqserve: Run, tmp_path: Path, server: FakeServer) -> None:
    for flag in ("--save-result", "--html"):
        status, _, err = seqserve("load", flag, tmp_path)
        assert (status, server.requests) == (2, [])
        assert f"{flag}: {tmp_path}: is not a regular file" in err


def test_comparing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, other = (tmp_path / name for name in ("old.json", "new.json", "other.json"))
    old.write_text('{"seed": 1, "duration": 1.0, "request_throughput": 10.0, "p99_e2el_ms": 50.0}')
    new.write_text('{"seed": 2, "duration": 1.0, "request_throughput": 20.0, "p99_e2el_ms": null}')
    other.write_text("[]")
    assert main(["load", "--compare", str(old), str(new)]) == 0
    out = capsys.readouterr().out
    assert [line.split() for line in out.splitlines()[:2]] == [
        ["old", "new", "RATIO"],
        ["answers", "a", "second", "10.0", "20.0", "2.00"],
    ]
    assert "seed: 1 in old, 2 in new" in out
    assert main(["load", "--compare", str(old), str(other)]) == 2
    assert "other.json: is not a result of a load" in capsys.readouterr().err
    assert main(["load", "--compare", str(old), str(tmp_path)]) == 2
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.slow
def test_the_highest_rate(seqserve: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_search, "_MOST_UP", 4)
    page = tmp_path / "page.html"
    arguments = ("--find-rate", "--p99", "60000", "--num-prompts", "3", "--num-warmups", "0")
    status, out, err = seqserve("load", *arguments, "--request-rate", "1000", "--html", page)
    assert (status, err) == (0, "")
    assert "Highest rate: 4,000.0 requests a second" in out
    assert "limit of 60000 ms" in page.read_text()


def test_no_rate_holds_what_one_request_alone_breaks(seqserve: Run, server: FakeServer) -> None:
    arguments = ("--find-rate", "--p99", "0.001", "--num-prompts", "3", "--num-warmups", "0")
    status, out, _ = seqserve("load", *arguments)
    # One before, and three in each of two tries.
    assert (status, len(server.requests)) == (1, 7)
    assert "No rate holds p99 within 0.001 ms." in out


@pytest.mark.slow
def test_several_processes(load: Load, server: FakeServer) -> None:
    arguments = ("--processes", "2", "--num-prompts", "11", "--connections", "2")
    facts = load(*arguments, "--request-rate", "200", "--num-warmups", "3")
    assert (facts["completed"], len(server.requests)) == (11, 1 + 3 + 11)
    assert load(*arguments, "--max-concurrency", "5")["completed"] == 11


@pytest.mark.slow
def test_a_process_that_cannot_connect(seqserve: Run, tmp_path: Path) -> None:
    arguments = ("--processes", "2", "--num-prompts", "4", "--token-file", "/missing")
    status, _, err = seqserve("load", *arguments)
    assert status == 2
    assert "--token-file: /missing cannot be read" in err


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"results": [Path("a")]}, "--compare: compares two files .* 1 are given"),
        ({"compare": True}, "--compare: compares two files .* 0 are given"),
        ({"find_rate": True}, "--find-rate: goes with --p99"),
        ({"p99": 5.0}, "--find-rate: goes with --p99"),
        ({"p99": 5.0, "find_rate": True, "max_concurrency": 2}, "--max-concurrency: does not go"),
        ({"p99": 5.0, "find_rate": True, "trace": Path("a")}, "--trace: does not go"),
        ({"trace": Path("a"), "request_rate": 1.0}, "--trace: does not go with --request-rate"),
        ({"request_rate": math.inf}, "--num-prompts: --request-rate inf needs"),
        ({"processes": 3, "max_concurrency": 2}, "--processes: 3 cannot share 2"),
        ({"backend": Backend.HTTP, "connections": 2}, "--connections: over HTTP each request"),
        ({"save_detailed": True}, "--save-detailed: needs --save-result"),
        ({"goodput": ["e2el=3"]}, "--goodput: 'e2el=3' is not TIME:MS"),
        ({"goodput": ["e2el:-3"]}, "--goodput: 'e2el:-3' is not TIME:MS"),
        ({"goodput": ["itl:3"]}, "--goodput: 'itl:3' is not TIME:MS"),
        ({"goodput": ["ttft:3"]}, "--goodput: ttft needs --stream"),
        ({"backend": Backend.HTTP, "target": "http://a:1"}, "--target: 'http://a:1' is not one"),
        ({"backend": Backend.HTTP, "target": "a"}, "target: 'a' is not host:port"),
        ({"backend": Backend.LIBRETRANSLATE}, "--target-language: LibreTranslate needs one"),
        (LIBRETRANSLATE | {"stream": True}, "--stream: LibreTranslate has no streams"),
        (LIBRETRANSLATE | {"beam_size": 2}, "--beam-size: LibreTranslate has no such option"),
        ({"backend": Backend.OPEN_INFERENCE}, "--model: the Open Inference Protocol needs one"),
        ({"input_name": "a"}, "--input-name: goes with --backend open-inference"),
        (LIBRETRANSLATE | {"model_version": 2}, "--model-version: LibreTranslate has no such"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], reason: str) -> None:
    with pytest.raises(OptionError, match=reason):
        LoadOptions(**options)  # type: ignore[arg-type]


def test_forms_over_http() -> None:
    ours = LoadOptions(backend=Backend.HTTP, model="m", stream=True).form()
    assert (ours.path, ours.text_field) == ("/v1/generate:stream", "source")
    assert ours.fields == {"model": "m"}
    theirs = LoadOptions(**LIBRETRANSLATE).form()
    assert (theirs.path, theirs.text_field) == ("/translate", "q")
    assert theirs.fields == {"source": "auto", "target": "de", "format": "text"}


def test_what_is_sent_without_options() -> None:
    load = load_of(LoadOptions())
    assert load.is_closed
    assert (load.in_flight, load.seconds, load.requests) == (32, 10.0, None)
    capped = load_of(LoadOptions(request_rate=3.0, max_concurrency=2, num_prompts=9))
    assert not capped.is_closed
    assert (capped.in_flight, capped.seconds, capped.requests) == (2, None, 9)


def test_a_token_is_the_key_of_libretranslate(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[HttpForm] = []
    caller = "seqserve.command.load_options.HttpCaller"
    monkeypatch.setattr(caller, lambda address, form, **_: sent.append(form))
    LoadOptions(**LIBRETRANSLATE, token="secret").caller()
    assert sent[0].fields["api_key"] == "secret"


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_load_ends_quietly(server: FakeServer, processes: int) -> None:
    command = [sys.executable, "-m", "seqserve", "load", "--target", server.target]
    command += ["--duration", "60", "--processes", str(processes), "--num-warmups", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        until(lambda: len(server.requests) >= 50)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out, err) == (130, b"", b"")
