"""Broken standard streams, in a process of its own; /dev/full is a full disk."""

import subprocess
import sys
from typing import Any

import pytest

from ..fake_server import FakeServer


def shell(server: FakeServer, arguments: str) -> tuple[int, str, str]:
    """Runs the command with redirections of the shell."""
    command = f"exec {sys.executable} -m seqserve {arguments}".replace("TARGET", server.target)
    done = subprocess.run(["sh", "-c", command], input=b"a\n", capture_output=True, timeout=60)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        *("generate --target TARGET a", "generate --target TARGET --file -"),
        *("models --target TARGET", "generate --help", "--version"),
    ],
)
def test_output_that_cannot_be_written(server: FakeServer, arguments: str) -> None:
    report = "seqserve: standard output: No space left on device\n"
    assert shell(server, f"{arguments} > /dev/full") == (1, "", report)


def test_streams_that_are_closed(server: FakeServer) -> None:
    command, report = "generate --target TARGET", "seqserve: standard {}put: Bad file descriptor\n"
    assert shell(server, f"{command} a >&-") == (1, "", report.format("out"))
    assert shell(server, f"{command} <&-") == (2, "", report.format("in"))
    assert shell(server, f"{command} a <&-") == (0, "A\n", "")
    assert shell(server, f"{command} a <&- >&- 2>&-") == (1, "", "")


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = [sys.executable, "-m", "seqserve", "--help"]
    process: Any = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    with process.stderr as errors:
        assert (errors.read(), process.wait(60)) == (b"", 141)


@pytest.mark.parametrize("broken", ["> /dev/full", ">&-"])
def test_reports_that_cannot_be_written_change_nothing(server: FakeServer, broken: str) -> None:
    command = "generate --target TARGET a 'fail INTERNAL' b"
    assert shell(server, f"{command} 2{broken}") == (1, "A\n\nB\n", "")


def test_arguments_that_are_not_utf_8(server: FakeServer) -> None:
    status, _, errors = shell(server, "generate --target $(printf '\\377:1') a")
    report = "seqserve: target: '\\udcff:1' has a character that no address has\n"
    assert (status, errors) == (2, report)


_BLOCKED_AT_THE_END = """
import atexit, threading
from seqserve.command import process

class Call:
    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()
    def __del__(self):
        self.lock.acquire()

process.begin()
atexit.register(print, "cleaned up")
call = Call()
process.end_with(process.fail(1, "no such model"))
"""


def test_a_failure_does_not_wait_for_calls_that_are_deleted() -> None:
    """A thread of gRPC that the interpreter has stopped may hold the lock of a call."""
    done = subprocess.run(
        [sys.executable, "-c", _BLOCKED_AT_THE_END], capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"cleaned up\n")
    assert done.stderr == b"seqserve: no such model\n"
