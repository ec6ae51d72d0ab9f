"""Drivers in separate processes, over pipes, a JSON line each way.

Both ends are here. The far end may run in another environment: standard library only.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from bench.drivers import Driver, Row

_ROOT = Path(__file__).parents[2]
_READY = "ready\n"


class SubprocessDriver(Driver[Row]):
    """Worker processes that all have the same model."""

    def __init__(self, name: str, command: Sequence[str], workers: int = 1) -> None:
        self.name = name
        self._workers = [
            subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(workers)
        ]
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        try:
            for worker in self._workers:
                self._read(worker)
                self._idle.put(worker)
        except RuntimeError:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Ids of the processes."""
        return [worker.pid for worker in self._workers]

    def decode(self, sources: Sequence[Row]) -> list[Row]:
        """Deals the sources out, by length, so that every process gets as much to do."""
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        shares = [by_length[first :: len(self._workers)] for first in range(len(self._workers))]
        for worker, share in zip(self._workers, shares, strict=True):
            self._write(worker, [sources[index] for index in share])
        replies = [json.loads(self._read(worker)) for worker in self._workers]
        rows = {
            index: row
            for share, reply in zip(shares, replies, strict=True)
            for index, row in zip(share, reply, strict=True)
        }
        return [rows[index] for index in range(len(sources))]

    def decode_batch(self, sources: Sequence[Row]) -> list[Row]:
        """Hands all sources to the next process that is idle; may be called from many threads."""
        worker = self._idle.get()
        try:
            self._write(worker, list(sources))
            rows: list[Row] = json.loads(self._read(worker))
            return rows
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Ends the processes, which stop at the end of their input."""
        for worker in self._workers:
            worker.communicate()

    def _write(self, worker: subprocess.Popen[str], sources: list[Row]) -> None:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(sources) + "\n")
        worker.stdin.flush()

    def _read(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} ended with status {worker.wait()}")
        return line


def command(interpreter: Path | str, driver: str, *arguments: object) -> list[str]:
    """Returns the command that runs a module of this folder, in another environment too."""
    # Not resolved: a virtual environment is known by the path of its link. And not as a script,
    # or other modules of this folder would be found in place of packages.
    module = f"bench.drivers.{driver}"
    return [str(Path(interpreter).absolute()), "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Returns the environment variables of the process."""
    # Torch and ONNX Runtime have threads each: one that spins takes a core from the other.
    return os.environ | {"OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1"}


def answer(load: Callable[[], Callable[[list[Any]], list[Any]]]) -> None:
    """Is the far end: loads a model, and answers every line of sources by one of rows."""
    # Replies alone go to the pipe; whatever libraries print, to where errors go.
    replies: IO[str]
    replies, sys.stdout = sys.stdout, sys.stderr
    decode = load()
    replies.write(_READY)
    replies.flush()
    for line in sys.stdin:
        replies.write(json.dumps(decode(json.loads(line))) + "\n")
        replies.flush()
