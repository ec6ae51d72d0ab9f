"""An engine's process: real ones, over a real artifact."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from seqserve_server.contract import messages
from seqserve_server.contract.errors import EngineFault
from seqserve_server.contract.events import Failed, Finished, Progress, StopReason
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import Ready, StatsReply
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.front.engine_client.client import EngineProcess
from seqserve_server.process.logs import LogFormat, LogLevel

pytestmark = pytest.mark.slow

PATIENCE_S = 60.0
LIMITS = EngineLimits(workers=2, slots=4, max_queue=16, max_source_tokens_per_step=64)
OPTIONS = DecodingOptions(max_decoding_length=12)


class OtherEnd:
    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        process.channel.settimeout(PATIENCE_S)
        self._stream = process.channel.makefile("rb")

    def send(self, message: messages.Message) -> None:
        self.process.channel.sendall(messages.encode_message(message))

    def submit(self, request_id: int, source: list[int], *, streamed: bool = False) -> None:
        spec = GenerateSpec(source=source, options=OPTIONS, streamed=streamed)
        self.send(messages.Submit(request_id, spec))

    def receive(self) -> messages.Message | None:
        return messages.read_message(self._stream)

    def close(self) -> None:
        self._stream.close()
        self.process.channel.close()


@contextmanager
def running(folder: Path, limits: EngineLimits = LIMITS, **more: Any) -> Iterator[OtherEnd]:
    setup = messages.Setup(folder, Provider.CPU, 1, limits)
    other = OtherEnd(EngineProcess(setup, LogFormat.TEXT, LogLevel.INFO, **more))
    try:
        yield other
    finally:
        other.close()
        other.process.end()
    assert not is_alive(other.process.pid)


def is_alive(pid: int) -> bool:
    """Returns whether a process runs; a zombie does not."""
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
    tiny_artifact: Path, tiny_offline: LocalEngine, capfd: pytest.CaptureFixture[str]
) -> None:
    sources = [tiny_offline.encode(text) for text in ("The coffee tastes music.", "Nobody", "a")]
    with running(tiny_artifact) as other:
        ready = other.receive()
        assert isinstance(ready, Ready)
        assert ready.slots == 4 and ready.cache_bytes > 0
        for number, source in enumerate(sources):
            other.submit(number, source, streamed=number == 1)
        answers: dict[int, Finished] = {}
        tokens: list[int] = []
        while len(answers) < len(sources):
            step = other.receive()
            assert isinstance(step, messages.StepEvents)
            for number, event, timeline in step.events:
                if isinstance(event, Finished):
                    answers[number] = event
                    # Its clock is ours.
                    assert timeline is not None and timeline.finished_s <= time.monotonic()
                else:
                    assert isinstance(event, Progress) and number == 1
                    tokens += event.token_ids
        assert list(map(answers.get, range(3))) == tiny_offline.decode(sources, OPTIONS)
        best = answers[1].best
        # The last token comes with the answer.
        last = 0 if best.stop_reason is StopReason.EOS else 1
        assert tokens == best.token_ids[: len(best.token_ids) - last]
        other.send(messages.GetStats())
        reply = other.receive()
        assert isinstance(reply, StatsReply)
        assert reply.stats.totals["source_tokens"] == sum(map(len, sources))
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
        step = other.receive()
        assert isinstance(step, messages.StepEvents)
        [(_, event, _)] = step.events
        assert isinstance(event, Failed) and isinstance(event.error, EngineFault)
    # A log line of ours, and not only that of ONNX Runtime.
    assert "a source of 2 tokens could not be encoded\n" in capfd.readouterr().err


def test_signals_to_end_are_for_the_front(tiny_artifact: Path, tiny_offline: LocalEngine) -> None:
    source = tiny_offline.encode("Nobody")
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(other.process.pid, number)
        other.submit(1, source)
        step = other.receive()
        assert isinstance(step, messages.StepEvents)
        assert step.events[0][1] == tiny_offline.decode([source], OPTIONS)[0]


def test_it_ends_with_unread_events(tiny_artifact: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)
        for number in range(16):
            other.submit(number, [5, 6, 2], streamed=True)
        # Now one message has come, and more follow.
        assert isinstance(other.receive(), messages.StepEvents)
        other.close()
        wait_ended(other.process.pid)
    assert "Traceback" not in capfd.readouterr().err


def test_hanging_process_is_killed(tiny_artifact: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(tiny_artifact, end_timeout_s=0.0) as other:
        assert isinstance(other.receive(), Ready)
        os.kill(other.process.pid, signal.SIGSTOP)
        other.process.end()
        assert not is_alive(other.process.pid)
        # The log does not report a crash.
        assert "engine process did not end and was killed" in caplog.text
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        caplog.clear()
        # Nothing happens to a process that has ended.
        other.process.end()


def test_folder_it_is_started_in_does_not_matter(
    tiny_artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files in the working directory are not imported, whatever their names."""
    for name in ("queue.py", "numpy.py", "tokenizers.py", "seqserve_server.py"):
        (tmp_path / name).write_text("raise ImportError('of the folder')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with running(tiny_artifact) as other:
        assert isinstance(other.receive(), Ready)


PARENT = """
import sys
from pathlib import Path
from seqserve_server.process.logs import LogFormat, LogLevel
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.messages import Setup, read_message
from seqserve_server.front.engine_client.client import EngineProcess
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.request import GenerateSpec

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
