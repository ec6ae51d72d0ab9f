"""Lines of the log, for people and for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import grpc
import pytest

from seqserve_server import logs
from seqserve_server.config import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers = []
    yield
    root.handlers, root.level = handlers, level


def written(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err.rstrip("\n")


@pytest.mark.parametrize("name", ["grpc._cython.cygrpc", "seqserve"])
def test_callers_who_went_away_are_no_news(capsys: pytest.CaptureFixture[str], name: str) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    log = logging.getLogger(name)
    for error in (grpc.aio.InternalError("not sent"), ValueError("a fault")):
        log.error("it failed", exc_info=error)
    text = written(capsys)
    assert "ValueError: a fault" in text
    # What we say ourselves is never left out.
    assert ("not sent" in text) == (name == "seqserve")


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    logs.event(
        "call", {"id": "a1", "ms": 1.23456, "message": 'no "x"', "model": "", "city": "Köln"}
    )
    line = written(capsys)
    assert line.endswith(' info call id=a1 ms=1.235 message="no \\"x\\"" model="" city=Köln')


@pytest.mark.parametrize("value", ["two\nlines", "carriage\rreturn", "\x1b[2J", "\u2028", "a\tb"])
@pytest.mark.parametrize("format_", list(LogFormat))
def test_value_cannot_forge_a_line(
    capsys: pytest.CaptureFixture[str], value: str, format_: LogFormat
) -> None:
    logs.configure(format_, LogLevel.INFO)
    logs.event("call", {"message": value})
    assert len(written(capsys).splitlines()) == 1


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.JSON, LogLevel.INFO)
    logs.event("model failed", {"model": "en-de/1", "seconds": 0.5}, logging.ERROR)
    line = json.loads(written(capsys))
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "error", "event": "model failed", "model": "en-de/1", "seconds": 0.5}


def test_trace_stays_within_the_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.JSON, LogLevel.INFO)
    try:
        raise ZeroDivisionError("why")
    except ZeroDivisionError:
        logging.getLogger("seqserve_server").exception("a step failed")
    line = json.loads(written(capsys))
    assert line["event"] == "a step failed" and "why" in line["trace"]


def test_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.WARNING)
    logs.event("call", {})
    logs.event("loud", {}, logging.WARNING)
    assert written(capsys).endswith("warning loud")
