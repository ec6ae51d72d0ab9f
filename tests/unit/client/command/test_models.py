from __future__ import annotations

import json

import pytest

from seqserve.command.main import main

from ..fake_server import FakeServer


def test_table(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--target", server.target]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "NAME       VERSION  STATE   SHARE  PRECISION  PROVIDER  ROWS  QUEUE  SOURCE  TARGET  "
        "ABOUT",
        "capitals*  2        ready   100%   fp32       cpu       3/64  5      64      80      "
        "Text in capitals; with a shortlist",
        "broken     1        failed                                                           "
        "decoder.onnx: the hash differs from the manifest's",
    ]


def test_json(server: FakeServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", "--target", server.target]) == 0
    capitals, broken = map(json.loads, capsys.readouterr().out.splitlines())
    assert (capitals["name"], capitals["is_default"], capitals["state"]) == (
        "capitals",
        True,
        "ready",
    )
    assert broken["state_reason"].startswith("decoder.onnx")


@pytest.mark.parametrize(
    "argv",
    [
        ["--target", "127.0.0.1:1", "traffic", "en-de", "1=90", "2=10"],
        ["traffic", "--target", "127.0.0.1:1", "en-de", "1=90", "2=10"],
        ["traffic", "en-de", "--target", "127.0.0.1:1", "1=90", "2=10"],
        ["traffic", "en-de", "1=90", "2=10", "--target", "127.0.0.1:1"],
    ],
)
def test_options_may_stand_anywhere(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", *argv, "--max-attempts", "1"]) == 1
    assert "Connection refused" in capsys.readouterr().err
