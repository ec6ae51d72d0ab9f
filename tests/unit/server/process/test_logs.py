import json
import logging
import os
from collections.abc import Callable, Iterator

import grpc
import pytest

from seqserve_server.process import logs
from seqserve_server.process.logs import LogFormat, LogLevel


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    root.handlers = []
    yield
    root.handlers, root.level = handlers, level


def written(capfd: pytest.CaptureFixture[str]) -> str:
    captured = capfd.readouterr()
    assert captured.out == ""
    return captured.err.rstrip("\n")


@pytest.mark.parametrize("name", ["grpc._cython.cygrpc", "seqserve"])
def test_callers_who_went_away_are_no_news(capfd: pytest.CaptureFixture[str], name: str) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    log = logging.getLogger(name)
    for error in (grpc.aio.InternalError("not sent"), ValueError("a fault")):
        log.error("it failed", exc_info=error)
    text = written(capfd)
    assert "ValueError: a fault" in text
    # What we say ourselves is never left out.
    assert ("not sent" in text) == (name == "seqserve")


def test_metadata_that_cannot_be_decoded_are_not_quoted(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    try:
        b"my secret \xff".decode()
    except UnicodeDecodeError as error:
        logging.getLogger("grpc._cython.cygrpc").error("on %s", error.object, exc_info=error)
    assert written(capfd) == ""


def test_text(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    logs.event(
        "call", {"id": "a1", "ms": 1.23456, "message": 'no "x"', "model": "", "city": "Köln"}
    )
    line = written(capfd)
    assert line.endswith(' info call id=a1 ms=1.235 message="no \\"x\\"" model="" city=Köln')


@pytest.mark.parametrize("value", ["two\nlines", "carriage\rreturn", "\x1b[2J", "\u2028", "a\tb"])
@pytest.mark.parametrize("format_", list(LogFormat))
def test_value_cannot_forge_a_line(
    capfd: pytest.CaptureFixture[str], value: str, format_: LogFormat
) -> None:
    logs.configure(format_, LogLevel.INFO)
    logs.event("call", {"message": value})
    assert len(written(capfd).splitlines()) == 1


def test_message_of_a_library_cannot_forge_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    logging.getLogger("asyncio").error("an exception\nnever retrieved")
    assert written(capfd).endswith(r'error "an exception\nnever retrieved"')


def test_message_of_an_exception_cannot_forge_a_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    try:
        raise ValueError("bad\n2026-01-01 error forged\x1b[2J")
    except ValueError:
        logging.getLogger("seqserve_server").exception("a step failed")
    first, *trace = written(capfd).split("\n")
    assert first.endswith(" error a step failed")
    assert all(line.startswith("  ") and line.isprintable() for line in trace)
    assert "  ValueError: bad" in trace and "forged" in trace[-1]


def test_announcement_is_in_the_format_of_the_log(capfd: pytest.CaptureFixture[str]) -> None:
    for format_ in LogFormat:
        logs.announce(format_, "ready for calls", "ready", {"models": ["en-de/1"]})
    text, line = capfd.readouterr().out.splitlines()
    assert text == "ready for calls"
    fields = json.loads(line)
    assert fields.pop("time").endswith("+00:00")
    assert fields == {"level": "info", "event": "ready", "models": ["en-de/1"]}


def test_json(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.JSON, LogLevel.INFO)
    logs.event("model failed", {"model": "en-de/1", "seconds": 0.5}, logging.ERROR)
    line = json.loads(written(capfd))
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "error", "event": "model failed", "model": "en-de/1", "seconds": 0.5}


def test_trace_stays_within_the_json_line(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.JSON, LogLevel.INFO)
    try:
        raise ZeroDivisionError("why")
    except ZeroDivisionError:
        logging.getLogger("seqserve_server").exception("a step failed")
    line = json.loads(written(capfd))
    assert line["event"] == "a step failed" and "why" in line["trace"]


def test_level(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.WARNING)
    logs.event("call", {})
    logs.event("loud", {}, logging.WARNING)
    assert written(capfd).endswith("warning loud")


@pytest.fixture
def standard_error() -> Iterator[Callable[[int], None]]:
    """Puts another file in its place until the end of the test."""
    kept = os.dup(2)
    yield lambda descriptor: os.dup2(descriptor, 2) and None
    os.dup2(kept, 2)
    os.close(kept)


def test_reader_that_sleeps_holds_up_nobody(standard_error: Callable[[int], None]) -> None:
    reader, writer = os.pipe()
    standard_error(writer)
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    for number in range(5000):
        logs.event(f"before {number}", {"words": "x" * 100})
    logs.event("long", {"words": "x" * 100_000})
    before = os.read(reader, 1 << 20).decode()
    assert " before 0 " in before and " before 4999 " not in before
    logs.event("after", {})
    assert os.read(reader, 1 << 20).decode().endswith(" info after\n")
    os.close(reader)
    logs.event("nobody is there", {})
    os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a file that is always full")
def test_full_disk_holds_up_nobody(standard_error: Callable[[int], None]) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    standard_error(full)
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    logs.event("lost", {})
    os.close(full)


def test_what_no_formatter_can_write_is_told_to_nobody(capfd: pytest.CaptureFixture[str]) -> None:
    logs.configure(LogFormat.TEXT, LogLevel.INFO)
    logs.event("call", {"words": "\ud800"})
    assert written(capfd).endswith('call words="\\ud800"')
