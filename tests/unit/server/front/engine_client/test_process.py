"""An engine's process: real ones, over a real artifact."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seqserve_server.contract.errors import ArtifactError, EngineFault, StartupError
from seqserve_server.contract.events import Failed, Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.logs import LogFormat, LogLevel
from seqserve_server.contract.messages import (
    GetStats,
    LoadFailed,
    Message,
    Ready,
    Setup,
    StatsReply,
    StepEvents,
    Submit,
    encode_message,
    read_message,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.provider import Provider
from seqserve_server.engine.offline import Offline
from seqserve_server.front.engine_client import process as module
from seqserve_server.front.engine_client.process import EngineProcess

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LIMITS = EngineLimits(workers=2, slots=4, max_queue=16, max_source_tokens_per_step=64)
OPTIONS = DecodingOptions(max_decoding_length=12)


class Correspondent:
    """The other end of a process."""

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        process.channel.settimeout(PATIENCE_S)
        self._stream = process.channel.makefile("rb")

    def send(self, message: Message) -> None:
        self.process.channel.sendall(encode_message(message))

    def submit(self, number: int, source: list[int], *, streamed: bool = False) -> None:
        self.send(Submit(number, source, OPTIONS, None, streamed, time.monotonic()))

    def receive(self) -> Message | None:
        return read_message(self._stream)

    def close(self) -> None:
        self._stream.close()
        self.process.channel.close()


@contextmanager
def running(folder: Path, limits: EngineLimits = LIMITS) -> Iterator[Correspondent]:
    setup = Setup(folder, Provider.CPU, 1, limits)
    other = Correspondent(EngineProcess(setup, LogFormat.TEXT, LogLevel.INFO))
    try:
        yield other
    finally:
        other.close()
        other.process.end()
    assert not is_alive(other.process.pid)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody has asked for yet does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_ended(pid: int) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while is_alive(pid):
        assert time.monotonic() < deadline_s, "it lives on"
        time.sleep(0.01)


def test_it_loads_answers_and_ends(
    tiny_artifact: Path, tiny_offline: Offline, capfd: pytest.CaptureFixture[str]
) -> None:
    sources = [tiny_offline.encode(text) for text in ("The coffee tastes music.", "Nobody", "a")]
    with running(tiny_artifact) as other:
        ready = other.receive()
        assert isinstance(ready, Ready)
        assert ready.slots == 4 and ready.cache_bytes > 0
        for number, source in enumerate(sources):
            other.submit(number, source, streamed=number == 1)
        answers: dict[int, Finished] = {}
        words: list[int] = []
        while len(answers) < len(sources):
            told = other.receive()
            assert isinstance(told, StepEvents)
            for number, event, timeline in told.events:
                if isinstance(event, Finished):
                    answers[number] = event
                    # Its clock is ours.
                    assert timeline is not None and timeline.finished_s <= time.monotonic()
                else:
                    assert isinstance(event, Progress) and number == 1
                    words += event.token_ids
        assert list(map(answers.get, range(3))) == tiny_offline.decode(sources, OPTIONS)
        said = answers[1].best
        # What comes last comes with the answer.
        last = 0 if said.stop_reason is StopReason.EOS else 1
        assert words == said.token_ids[: len(said.token_ids) - last]
        other.send(GetStats())
        report = other.receive()
        assert isinstance(report, StatsReply)
        assert report.figures.totals["source_tokens"] == sum(map(len, sources))
        other.close()
        wait_ended(other.process.pid)
        other.process.end()
        assert other.process._process.returncode == 0
    assert capfd.readouterr() == ("", "")


def test_fault_of_one_source_is_an_event_and_in_the_log(
    tiny_artifact: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(tiny_artifact) as other:
        other.receive()
        other.submit(1, [9_999, 2])
        told = other.receive()
        assert isinstance(told, StepEvents)
        [(_, event, _)] = told.events
        assert isinstance(event, Failed) and isinstance(event.error, EngineFault)
    # A line as the server's, and not only what ONNX Runtime says.
    assert "a source of 2 tokens could not be encoded\n" in capfd.readouterr().err


@pytest.mark.parametrize("file", ["manifest.json", "decoder.onnx", "weights.bin"])
def test_damaged_artifact(tiny_artifact: Path, tmp_path: Path, file: str) -> None:
    folder = tmp_path / "tiny" / "1"
    shutil.copytree(tiny_artifact, folder)
    with (folder / file).open("ab") as damaged:
        damaged.write(b"!")
    with running(folder) as other:
        unable = other.receive()
        assert isinstance(unable, LoadFailed)
        assert isinstance(unable.error, ArtifactError) and file in str(unable.error)
        assert other.receive() is None
        wait_ended(other.process.pid)


def test_caches_that_do_not_fit(tiny_artifact: Path) -> None:
    limits = EngineLimits(workers=1, slots=1 << 50, max_queue=2, max_source_tokens_per_step=64)
    with running(tiny_artifact, limits) as other:
        unable = other.receive()
        assert isinstance(unable, LoadFailed)
        assert isinstance(unable.error, StartupError) and "--slots" in str(unable.error)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_to_end_are_the_servers(
    tiny_artifact: Path, tiny_offline: Offline, number: signal.Signals
) -> None:
    source = tiny_offline.encode("Nobody")
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)
        os.kill(other.process.pid, number)
        other.submit(1, source)
        told = other.receive()
        assert isinstance(told, StepEvents)
        assert told.events[0][1] == tiny_offline.decode([source], OPTIONS)[0]


def test_it_ends_though_nobody_reads_what_it_tells(
    tiny_artifact: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)
        for number in range(16):
            other.submit(number, [5, 6, 2], streamed=True)
        # Now something is on its way, and more to come.
        assert isinstance(other.receive(), StepEvents)
        other.close()
        wait_ended(other.process.pid)
    assert "Traceback" not in capfd.readouterr().err


def test_it_ends_where_it_is_closed_while_it_loads(
    tiny_artifact: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with running(tiny_artifact) as other:
        other.close()
        wait_ended(other.process.pid)
    assert "Traceback" not in capfd.readouterr().err


def test_one_that_does_not_end_is_made_to(
    tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.0)
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)
        os.kill(other.process.pid, signal.SIGSTOP)
        other.process.end()
        assert not is_alive(other.process.pid)
        # Not as of one that crashed.
        assert "did not end in 0 s and was killed" in caplog.text
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        caplog.clear()
        # Of one that has ended nothing more is wanted.
        other.process.end()


def test_folder_it_is_started_in_does_not_matter(
    tiny_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies there is no module of the server, whatever it is called."""
    for name in ("queue.py", "numpy.py", "tokenizers.py", "seqserve_server.py"):
        (tmp_path / name).write_text("raise ImportError('of the folder')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)


PARENT = """
import sys
from pathlib import Path
from seqserve_server.contract.logs import LogFormat, LogLevel
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.messages import Setup, read_message
from seqserve_server.front.engine_client.process import EngineProcess
from seqserve_server.contract.provider import Provider

limits = EngineLimits(workers=2, slots=4, max_queue=16, max_source_tokens_per_step=64)
setup = Setup(Path(sys.argv[1]), Provider.CPU, 1, limits)
processes = [EngineProcess(setup, LogFormat.TEXT, LogLevel.INFO) for _ in range(2)]
if sys.argv[2] == "ready":
    for process in processes:
        assert read_message(process.channel.makefile("rb")) is not None
print(*(process.pid for process in processes), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("when", ["loading", "ready"])
def test_none_outlives_a_server_that_is_killed(tiny_artifact: Path, when: str) -> None:
    command = [sys.executable, "-c", PARENT, str(tiny_artifact), when]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None and parent.stderr is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(map(is_alive, pids))
        parent.kill()
        # Both write to it, and so it ends with the last of them.
        said = parent.stderr.read()
    assert "Traceback" not in said
    for pid in pids:
        wait_ended(pid)
