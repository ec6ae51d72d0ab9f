"""Drivers and objects in separate processes, with both ends of their pipes.

The far end of a driver, which gets a JSON line each way, may run in another environment: standard
library only. The failure of an object breaks nothing else, and no call waits for ever: an error of
a GPU leaves its process unable to use it, so engines that are compared there share none.
"""

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any

from bench.drivers import Closing, Driver, Row

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


def timed(name: str, command: Sequence[str]) -> tuple[float, "resource.struct_rusage"]:
    """Runs a command; returns the seconds that it took, and what it used."""
    began_s = time.perf_counter()
    output = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=_ROOT, env=environment(), stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name} ended with {process.returncode}")
    return time.perf_counter() - began_s, usage


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


_PATIENCE_S = 5.0


class RemoteObject(Closing):
    """Calls the methods of an object that another process makes.

    Arguments and results are pickled.
    """

    def __init__(self, name: str, make: Callable[..., Any], *arguments: Any) -> None:
        self.name = name
        context = multiprocessing.get_context("spawn")
        self._pipe, far_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far_end, make, arguments), daemon=True, name=name
        )
        self._process.start()
        far_end.close()

    @property
    def pid(self) -> int:
        """Id of the process."""
        assert self._process.pid is not None, "it has been started"
        return self._process.pid

    def call(self, method: str, *arguments: Any, timeout_s: float) -> Any:
        """Calls a method and waits for its result.

        Raises:
            RuntimeError: It failed, or took too long, and the process with it.
        """
        self.send(method, *arguments)
        return self.receive(timeout_s)

    def send(self, method: str, *arguments: Any) -> None:
        """Calls a method whose result :meth:`receive` takes."""
        try:
            self._pipe.send((method, arguments))
        except OSError:
            raise RuntimeError(self._end()) from None

    def receive(self, timeout_s: float) -> Any:
        """Returns the result of a call, as :meth:`call` does; the first is None, for its making."""
        try:
            if not self._pipe.poll(max(timeout_s, 0.0)):
                self.close()
                raise RuntimeError(f"{self.name}: no answer after {timeout_s:.0f} s")
            error, result = self._pipe.recv()
        except (EOFError, OSError):
            raise RuntimeError(self._end()) from None
        if error:
            raise RuntimeError(f"{self.name}: {error}")
        return result

    def _end(self) -> str:
        self._process.join(_PATIENCE_S)
        return f"{self.name}: its process ended with status {self._process.exitcode}"

    def close(self) -> None:
        """Ends the process, by force if it is busy."""
        self._pipe.close()
        self._process.join(_PATIENCE_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(pipe: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    made: list[Any] = []
    _answer(pipe, lambda: made.append(make(*arguments)))
    while made:
        try:
            method, taken = pipe.recv()
        except EOFError:
            return
        _answer(pipe, partial(getattr(made[0], method), *taken))


def _answer(pipe: Connection, run: Callable[[], Any]) -> None:
    try:
        answer = "", run()
    except Exception as error:
        traceback.print_exc()
        answer = f"{type(error).__name__}: {error}", None
    # Perhaps no caller waits for it any more.
    with suppress(OSError):
        pipe.send(answer)
