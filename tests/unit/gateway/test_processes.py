import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.process import PATIENCE_S, members, until

from seqserve.errors import OptionError
from seqserve_gateway.processes import listener_at, shared_port

PARENT = """
import sys
from seqserve_gateway.processes import Children
script, drain_timeout_s = sys.argv[1], float(sys.argv[2])

def command(number, folder):
    return [sys.executable, "-P", "-c", script, str(number), str(folder)]

def all_serve():
    print("all serve", flush=True)

sys.exit(Children(2, command, all_serve, drain_timeout_s, first_pause_s=0.01).run())
"""
CHILD = """
import os, socket, sys
number, folder = sys.argv[1:]
parent = socket.socket(fileno=0)
os.write(1, f"begins {number} {os.getpid()} {folder}\\n".encode())
%s
parent.send(b"s")
while word := parent.recv(1):
    os.write(1, f"{number} is told {word.decode()}\\n".encode())
    if word == b"d":
        %s
"""
DRAINS = CHILD % ("", "sys.exit()")
OBEYS = """
import asyncio, os, pathlib, sys
from seqserve_gateway.processes import Parent
os.write(1, f"begins {sys.argv[1]} {os.getpid()} {sys.argv[2]}\\n".encode())
parent = Parent(pathlib.Path(sys.argv[2]))

async def serve():
    is_over = asyncio.Event()
    parent.tell(lambda word: is_over.set() if word == b"d" else None)
    await is_over.wait()

asyncio.run(serve())
"""


class Family:
    """A parent that runs, with two children."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []

    def hears(self, pattern: str, times: int = 1) -> list[str]:
        """Reads until as many lines match, and returns the first group of each."""
        assert self.process.stdout is not None
        while len(found := self._heard(pattern)) < times:
            line = self.process.stdout.readline()
            assert line, self.lines
            self.lines.append(line)
        return found

    def _heard(self, pattern: str) -> list[str]:
        matches = (re.search(pattern, line) for line in self.lines)
        return [each[each.re.groups and 1] for each in matches if each]

    def folder(self) -> Path:
        """Waits until all serve; returns the folder that they share."""
        self.hears("^all serve$")
        return Path(self.hears(r"begins 0 \d+ (.+)")[0])

    def ends(self) -> int:
        status = self.process.wait(PATIENCE_S)
        assert members(self.process.pid) == []
        return status


@contextmanager
def family(child: str, drain_timeout_s: float = 60.0) -> Iterator[Family]:
    command = [sys.executable, "-P", "-c", PARENT, child, str(drain_timeout_s)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, start_new_session=True, **streams) as process:
        try:
            yield Family(process)
        finally:
            process.kill()


def test_a_child_that_dies_is_started_again_and_the_other_one_is_left() -> None:
    with family(DRAINS) as running:
        running.hears("[01] is told a", times=2)
        first, second = (running.hears(rf"begins {number} (\d+)")[0] for number in "01")
        os.kill(int(first), signal.SIGKILL)
        running.hears("process 0 of the gateway has ended with status 137; another one starts")
        assert running.hears(r"begins 0 (\d+)", times=2)[1] != first
        running.hears("0 is told a", times=2)
        assert int(second) in members(running.process.pid)
        running.process.terminate()
        assert running.ends() == 0
    assert sum(line == "all serve\n" for line in running.lines) == 1


def test_the_pause_grows_while_a_child_dies_again_and_again() -> None:
    dies = "if number == '0' and '0' in os.listdir(folder): os._exit(3)"
    dies += "\nopen(os.path.join(folder, number), 'w').close()"
    with family(CHILD % (dies, "sys.exit()")) as running:
        running.hears("^all serve$")
        os.kill(int(running.hears(r"begins 0 (\d+)")[0]), signal.SIGKILL)
        pauses = [float(each) for each in running.hears(r"starts in ([\d.]+) s", times=4)]
        running.process.terminate()
        assert running.ends() == 0
    assert pauses == [0.01, 0.02, 0.04, 0.08]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_all_and_leaves_no_folder(number: signal.Signals) -> None:
    with family(DRAINS) as running:
        folder = running.folder()
        assert folder.stat().st_mode & 0o777 == 0o700
        running.process.send_signal(number)
        assert running.ends() == 0
        running.hears("[01] is told d", times=2)
    assert not folder.exists()


def test_children_leave_a_signal_to_all_processes_to_the_parent() -> None:
    with family(OBEYS) as running:
        running.hears("^all serve$")
        # As Ctrl-C in a terminal, and systemd, send it.
        os.killpg(running.process.pid, signal.SIGTERM)
        assert running.ends() == 0


def test_a_second_signal_ends_all_at_once() -> None:
    with family(CHILD % ("", "pass")) as running:
        folder = running.folder()
        running.process.terminate()
        running.hears("[01] is told d", times=2)
        running.process.terminate()
        assert running.ends() == 128 + signal.SIGTERM
    assert not folder.exists()


def test_a_child_that_fails_in_the_drain_shows_in_the_status() -> None:
    with family(CHILD % ("", "sys.exit(3 * int(number))")) as running:
        running.hears("^all serve$")
        running.process.terminate()
        assert running.ends() == 3


def test_a_child_that_cannot_begin_ends_all() -> None:
    with family(CHILD % ("if number == '1': sys.exit(2)", "sys.exit()")) as running:
        assert running.ends() == 2
        running.hears("process 1 of the gateway has ended with status 2 before all served")
    assert "all serve\n" not in running.lines


def test_children_and_their_folder_end_with_a_parent_that_is_killed() -> None:
    with family(OBEYS) as running:
        folder = running.folder()
        running.process.kill()
        until(lambda: members(running.process.pid) == [])
    until(lambda: not folder.exists())


def test_a_shared_port_is_for_those_who_share_it() -> None:
    with shared_port("127.0.0.1", 0, "--port") as holder:
        port = holder.getsockname()[1]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        with (
            listener_at("127.0.0.1", port, "--port", is_shared=True),
            listener_at("127.0.0.1", port, "--port", is_shared=True),
        ):
            socket.create_connection(("127.0.0.1", port)).close()
            for take in (shared_port, listener_at):
                with pytest.raises(OptionError, match=f"--port: cannot listen .*:{port}: another"):
                    take("127.0.0.1", port, "--port")


def test_system_that_spreads_nothing_has_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(OptionError, match=r"--processes: only Linux .* leave it at 1"):
        shared_port("127.0.0.1", 0, "--port")
