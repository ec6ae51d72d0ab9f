"""Engines in processes of this machine.

Each process does all that its texts need, so that on every core one of them runs alone. It ends
when its pipe does, also where the command is killed.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from typing import Any

from seqserve.errors import SeqserveError
from seqserve.processes import leave_interrupts, spawn
from seqserve_server.contract.errors import EngineFault, StartupError
from seqserve_server.corpus.corpus_file import Answer
from seqserve_server.corpus.engine import Answered, CorpusEngine, EngineSettings

_ENDED = "an engine's process has ended{}; the same command goes on where this one has stopped"
_END_PATIENCE_S = 10.0


class ProcessPool:
    """Processes with an engine each; :meth:`close` ends them."""

    def __init__(self, settings: Sequence[EngineSettings]) -> None:
        """Starts a process for each settings, and waits until all have loaded the model."""
        self._processes: list[_EngineProcess] = []
        try:
            for each in settings:
                self._processes.append(_EngineProcess(each))
            for process in self._processes:
                process.wait_ready()
        except BaseException:
            # They may be loading for long, and have nothing to lose.
            for process in self._processes:
                process.kill()
            self.close()
            raise

    @property
    def engines(self) -> int:
        """How many engines there are."""
        return len(self._processes)

    @property
    def pids(self) -> list[int]:
        """The ids of the processes."""
        return [process.pid for process in self._processes]

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        """Hands texts to the engine with the fewest."""
        return min(self._processes, key=lambda process: process.pending).submit(texts)

    def close(self) -> None:
        """Ends the processes; texts without an answer fail."""
        for process in self._processes:
            process.hang_up()
        for process in self._processes:
            process.join()


class _EngineProcess:
    def __init__(self, settings: EngineSettings) -> None:
        self._pipe, theirs = multiprocessing.Pipe()
        with theirs:
            self._process = spawn(_serve, theirs, settings)
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._futures: dict[int, Future[list[Answer]]] = {}
        self._end = ""
        self._thread = threading.Thread(target=self._read, name="seqserve-corpus", daemon=True)

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def pending(self) -> int:
        return len(self._futures)

    def wait_ready(self) -> None:
        try:
            fault: SeqserveError | None = self._pipe.recv()
        except (EOFError, OSError):
            raise StartupError(self._ended()) from None
        if fault is not None:
            raise fault
        self._thread.start()

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        future: Future[list[Answer]] = Future()
        number = next(self._numbers)
        with self._lock:
            if self._end:
                future.set_exception(EngineFault(self._end))
                return future
            self._futures[number] = future
        # Where the pipe is broken, the thread that reads tells all that wait.
        with suppress(OSError):
            self._pipe.send((number, texts))
        return future

    def kill(self) -> None:
        self._process.kill()

    def hang_up(self) -> None:
        """Ends the process once it has read this; its answers are lost."""
        with suppress(OSError):
            self._pipe.send(None)

    def join(self) -> None:
        self._process.join()
        if self._thread.is_alive():
            self._thread.join()
        self._pipe.close()

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                number, answered = self._pipe.recv()
                with self._lock:
                    future = self._futures.pop(number)
                if isinstance(answered, SeqserveError):
                    future.set_exception(answered)
                else:
                    future.set_result(answered)
        end = self._ended()
        with self._lock:
            self._end, left, self._futures = end, self._futures, {}
        for future in left.values():
            future.set_exception(EngineFault(end))

    def _ended(self) -> str:
        self._process.join(_END_PATIENCE_S)
        code = self._process.exitcode
        # The system kills it when memory is short.
        return _ENDED.format(f" by signal {-code}" if code and code < 0 else "")


def _serve(pipe: Connection, settings: EngineSettings) -> None:
    leave_interrupts()
    lock = threading.Lock()

    def send(message: Any) -> None:
        # Where the other end is gone, so is, in a moment, this process.
        with lock, suppress(OSError):
            pipe.send(message)

    try:
        engine = CorpusEngine(settings)
    except SeqserveError as error:
        send(error)
        return
    with closing(engine), suppress(EOFError, OSError):
        send(None)
        while (task := pipe.recv()) is not None:
            number, texts = task

            def reply(future: Future[Answered], number: int = number) -> None:
                send((number, future.result()))

            engine.begin(texts).add_done_callback(reply)
