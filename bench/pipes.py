"""Peers in an environment of their own, spoken to over pipes, a JSON line each way.

Both ends are here. The far end imports nothing but the standard library from this repository.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

_ROOT = Path(__file__).parents[1]
_READY = "ready\n"


class Pipes:
    """Processes that decode, each what it is given."""

    def __init__(self, command: Sequence[str], workers: int) -> None:
        """Starts the processes and waits until they have loaded the model.

        Raises:
            RuntimeError: One ended before it was ready; its output names the reason.
        """
        self.seconds = 0.0
        """How long the slowest one took over its share of the last sources, pipes left out."""
        self._command = command
        self._workers = [self._start() for _ in range(workers)]
        self._idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        try:
            for worker in self._workers:
                self._read(worker)
                self._idle.put(worker)
        except RuntimeError:
            self.close()
            raise

    def decode(self, sources: Sequence[Any]) -> list[Any]:
        """Deals the sources out, by length, so that every process gets as much to do."""
        by_length = sorted(range(len(sources)), key=lambda index: len(sources[index]))
        shares = [by_length[first :: len(self._workers)] for first in range(len(self._workers))]
        for worker, share in zip(self._workers, shares, strict=True):
            self._write(worker, [sources[index] for index in share])
        replies = [json.loads(self._read(worker)) for worker in self._workers]
        self.seconds = max(reply["seconds"] for reply in replies)
        found: list[Any] = [None] * len(sources)
        for share, reply in zip(shares, replies, strict=True):
            for index, row in zip(share, reply["rows"], strict=True):
                found[index] = row
        return found

    def decode_batch(self, sources: Sequence[Any]) -> list[Any]:
        """Gives all sources to the next process that is idle; may be called from many threads."""
        worker = self._idle.get()
        try:
            self._write(worker, list(sources))
            found: list[Any] = json.loads(self._read(worker))["rows"]
            return found
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """Ends the processes, which stop at the end of their input."""
        for worker in self._workers:
            worker.communicate()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self._command,
            cwd=_ROOT,
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _write(self, worker: subprocess.Popen[str], sources: list[Any]) -> None:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(sources) + "\n")
        worker.stdin.flush()

    def _read(self, worker: subprocess.Popen[str]) -> str:
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._command[0]} ended with status {worker.wait()}")
        return line


def command(interpreter: Path, module: str) -> list[str]:
    """Gives the command that runs a module of this folder in another environment."""
    # Not resolved: a virtual environment is known by the path of its link. And not as a script,
    # or other modules of this folder would be found in place of packages.
    return [str(interpreter.absolute()), "-m", f"bench.{module}"]


def environment() -> dict[str, str]:
    """Gives the variables of such a process."""
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
        sources = json.loads(line)
        began_s = time.perf_counter()
        rows = decode(sources)
        seconds = time.perf_counter() - began_s
        replies.write(json.dumps({"rows": rows, "seconds": seconds}) + "\n")
        replies.flush()
