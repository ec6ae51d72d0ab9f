"""This project's engine alone, with the limits of a server: no gRPC, no text."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.calls import MAX_DECODING_LENGTH
from bench.drivers import Closing, gc_freeze
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Failed, Finished
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.front.config import ServeOptions
from seqserve_server.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRun:
    """One decoding of all sources."""

    tokens: int
    wall_s: float
    cpu_s: float
    step_s: float = 0.0
    """Of the steps of all workers."""
    outside_s: float = 0.0
    """The part of it that was spent outside ONNX Runtime."""

    @property
    def tokens_per_s(self) -> float:
        """Speed on the clock."""
        return self.tokens / self.wall_s


class EngineProcess(Closing):
    """An engine in a process of its own."""

    def __init__(
        self,
        artifact: Path,
        sources: Sequence[list[int]],
        in_flight: int,
        workers: int | None = None,
    ) -> None:
        """Starts the process and waits until the engine runs.

        Args:
            artifact: Its folder.
            sources: Token ids, the end token last in each.
            in_flight: Requests that are under way at once.
            workers: Threads that run steps; as many as a server has where not given.
        """
        self._process = ProcessPoolExecutor(
            1,
            multiprocessing.get_context("spawn"),
            initializer=_start,
            initargs=(artifact, list(sources), in_flight, workers),
        )
        # The first task waits for the initializer.
        self._process.submit(time.perf_counter).result()

    def decode(self) -> LoopRun:
        """Decodes all sources once."""
        return self._process.submit(_decode).result()

    def close(self) -> None:
        """Ends the process."""
        self._process.shutdown()


_LOOPS: list[_ClosedLoop] = []
"""The only one of this process, in processes of :class:`EngineProcess`."""


def _start(artifact: Path, sources: list[list[int]], in_flight: int, workers: int | None) -> None:
    _LOOPS.append(_ClosedLoop(artifact, sources, in_flight, workers))
    gc_freeze()


def _decode() -> LoopRun:
    return _LOOPS[0].run()


class _ClosedLoop(Observer):
    """Submits a request for each that ends, and adds up the time of steps."""

    def __init__(
        self, artifact: Path, sources: list[list[int]], in_flight: int, workers: int | None
    ) -> None:
        self._sources, self._in_flight = sources, in_flight
        self._lock, self._done = threading.Lock(), threading.Event()
        self._error: Exception | None = None
        self.step_s = self.outside_s = 0.0
        options = ServeOptions(max_queue_s=60.0, caller_share=1.0, workers=workers)
        runtime = Runtime(artifact, Manifest.load(artifact), options.provider, options.threads)
        detokenize = Tokenizer.load(artifact / "tokenizer.json").decode
        self._engine = Engine(runtime, options.engine_limits(), self._receive, self, detokenize)
        self._engine.warm_up()
        self._engine.start()

    def run(self) -> LoopRun:
        self._waiting, self._left, self._tokens = iter(self._sources), len(self._sources), 0
        self.step_s = self.outside_s = 0.0
        self._done.clear()
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(self._in_flight):
            self._submit_next()
        self._done.wait()
        if self._error:
            raise self._error
        return LoopRun(
            tokens=self._tokens,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
            step_s=self.step_s,
            outside_s=self.outside_s,
        )

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        with self._lock:
            self.step_s += duration_s
            self.outside_s += outside_s

    def _submit_next(self) -> None:
        with self._lock:
            source = next(self._waiting, None)
        if source is not None:
            # As the callers of the server.
            options = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH, return_scores=False)
            self._engine.submit(Request(GenerateSpec(source=source, options=options)))

    def _receive(self, events: Events) -> None:
        """Takes events, from the threads of all workers."""
        for _, event in events:
            if isinstance(event, Failed):
                self._error = event.error
                self._done.set()
            elif isinstance(event, Finished):
                with self._lock:
                    self._tokens += len(event.best.token_ids)
                    self._left -= 1
                if not self._left:
                    self._done.set()
                self._submit_next()
