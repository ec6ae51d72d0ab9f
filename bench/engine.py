"""Runs the engine alone in a process of its own: the server's limits, no gRPC, no text."""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

from bench.garbage import freeze_objects
from bench.load import MAX_DECODING_LENGTH
from seqserve_server.contract.events import Event, Failed, Finished
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.front.config import ServeOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """One decoding of all sources."""

    tokens: int
    wall_s: float
    cpu_s: float
    step_s: float = 0.0
    """Of the steps of all workers."""
    outside_s: float = 0.0
    """The part of it that was spent outside ONNX Runtime."""


class EngineProcess:
    """An engine in a process of its own; a context manager that ends it."""

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
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        arguments = (theirs, artifact, list(sources), in_flight, workers)
        self._process = context.Process(target=_run, args=arguments, daemon=True)
        self._process.start()
        # If held here too, the pipe would not close when the process ends.
        theirs.close()
        self._pipe.recv()

    def __enter__(self) -> EngineProcess:
        """Gives itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Ends the process."""
        self._pipe.close()
        self._process.join()

    def decode(self) -> EngineRun:
        """Decodes all sources once."""
        self._pipe.send(None)
        run = self._pipe.recv()
        assert isinstance(run, EngineRun)
        return run


def _run(
    pipe: Connection,
    artifact: Path,
    sources: list[list[int]],
    in_flight: int,
    workers: int | None,
) -> None:
    """Decodes on request until the other end of the pipe is closed."""
    options = ServeOptions(max_queue_s=60.0, caller_share=1.0, workers=workers)
    runtime = Runtime(artifact, Manifest.load(artifact), options.provider, options.threads)
    detokenize = Tokenizer.load(artifact / "tokenizer.json").decode
    clock = _StepClock()
    engine = Engine(runtime, options.engine_limits(), _deliver, clock, detokenize)
    engine.warm_up()
    engine.start()
    freeze_objects()
    pipe.send(None)
    try:
        while True:
            pipe.recv()
            clock.step_s = clock.outside_s = 0.0
            run = _ClosedLoop(engine, sources).run(in_flight)
            pipe.send(replace(run, step_s=clock.step_s, outside_s=clock.outside_s))
    except EOFError:
        engine.stop()


class _StepClock(Observer):
    """Adds up the time of steps."""

    def __init__(self) -> None:
        self.step_s = self.outside_s = 0.0
        self._lock = threading.Lock()

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        with self._lock:
            self.step_s += duration_s
            self.outside_s += outside_s


class _ClosedLoop:
    """Submits a request for each that ends."""

    def __init__(self, engine: Engine, sources: Sequence[list[int]]) -> None:
        self._engine = engine
        self._waiting = iter(sources)
        self._left = len(sources)
        self._tokens = 0
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()

    def run(self, in_flight: int) -> EngineRun:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        for _ in range(in_flight):
            self._submit_next()
        self._done.wait()
        if self._error:
            raise self._error
        return EngineRun(
            tokens=self._tokens,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
        )

    def _submit_next(self) -> None:
        with self._lock:
            source = next(self._waiting, None)
        if source is not None:
            # As the callers of the server.
            options = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH, return_scores=False)
            spec = GenerateSpec(source=source, options=options)
            self._engine.submit(_LoopRequest(spec, self))

    def receive(self, event: Event) -> None:
        """Takes an event, from the threads of all workers."""
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


class _LoopRequest(Request):
    """A request of a closed loop."""

    def __init__(self, spec: GenerateSpec, loop: _ClosedLoop) -> None:
        super().__init__(spec)
        self.loop = loop


def _deliver(events: Events) -> None:
    for request, event in events:
        assert isinstance(request, _LoopRequest)
        request.loop.receive(event)
