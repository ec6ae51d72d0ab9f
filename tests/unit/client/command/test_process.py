"""Broken standard streams, in a process of its own; /dev/full is a full disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ..fake_server import FakeServer


def shell(server: FakeServer, arguments: str) -> tuple[int, str, str]:
    """Runs the command with redirections of the shell."""
    command = f"exec {sys.executable} -m seqserve {arguments}"
    done = subprocess.run(
        ["sh", "-c", command.replace("TARGET", server.target)],
        input=b"a\n",
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    "arguments",
    [
        "generate --target TARGET a",
        "generate --target TARGET --file -",
        "models --target TARGET",
        "generate --help",
        "--version",
    ],
)
def test_output_that_cannot_be_written(server: FakeServer, arguments: str) -> None:
    report = "seqserve: standard output: No space left on device\n"
    assert shell(server, f"{arguments} > /dev/full") == (1, "", report)


def test_output_that_is_closed(server: FakeServer) -> None:
    report = "seqserve: standard output: Bad file descriptor\n"
    assert shell(server, "generate --target TARGET a >&-") == (1, "", report)


def test_input_that_is_closed(server: FakeServer) -> None:
    report = "seqserve: standard input: Bad file descriptor\n"
    assert shell(server, "generate --target TARGET <&-") == (2, "", report)
    assert shell(server, "generate --target TARGET a <&-") == (0, "A\n", "")


@pytest.mark.parametrize("broken", ["> /dev/full", ">&-"])
def test_reports_that_cannot_be_written_change_nothing(server: FakeServer, broken: str) -> None:
    command = "generate --target TARGET a 'fail INTERNAL' b"
    assert shell(server, f"{command} 2{broken}") == (1, "A\n\nB\n", "")


def test_all_closed(server: FakeServer) -> None:
    assert shell(server, "generate --target TARGET a <&- >&- 2>&-") == (1, "", "")


def test_arguments_that_are_not_utf_8(server: FakeServer) -> None:
    status, _, errors = shell(server, "generate --target $(printf '\\377:1') a")
    report = "seqserve: target: '\\udcff:1' has a character that no address has\n"
    assert (status, errors) == (2, report)
