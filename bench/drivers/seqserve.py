"""This project's engine, without gRPC: as a driver, and alone in a separate process."""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.drivers import Driver, Rows, TextDriver, gc_freeze
from bench.drivers.subprocess_driver import RemoteObject
from bench.requests import MAX_DECODING_LENGTH
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.events import Failed, Finished
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.local_engine import LocalEngine
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.front.config import ServeOptions
from seqserve_server.text.tokenizer import Tokenizer

_PATIENCE_S = 600.0


class SeqserveDriver(Driver[list[int]]):
    """The engine with workers of one thread."""

    def __init__(
        self, folder: Path, rows: int, options: DecodingOptions, workers: int | None = None
    ) -> None:
        """Loads an artifact; ``rows`` sources may run at once in each worker, one on each core."""
        workers = workers or available_cores()
        # The other engines compute no scores unless they are asked to.
        self._options = replace(options, return_scores=False)
        self._engine = LocalEngine(folder, workers=workers, slots=rows * options.rows * workers)
        manifest = self._engine.manifest
        has_shortlist = manifest.shortlist is not None and options.shortlist
        self.name = f"seqserve {manifest.precision}" + " with shortlist" * has_shortlist

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Lets all sources wait; rows join as others leave."""
        return [answer.best.token_ids for answer in self._engine.decode(sources, self._options)]

    def of_texts(self) -> TextDriver[list[int]]:
        """Returns the driver with the tokenizer of its artifact."""
        return TextDriver(self, self._engine.encode, self._engine.tokenizer.decode)

    def close(self) -> None:
        """Stops the workers."""
        self._engine.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopRun:
    """One decoding of all sources."""

    sources: int
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


class EngineProcess(RemoteObject):
    """A :class:`ClosedLoop` in a separate process."""

    def __init__(
        self,
        artifact: Path,
        sources: Sequence[list[int]],
        in_flight: int,
        workers: int | None = None,
    ) -> None:
        super().__init__("engine", ClosedLoop, artifact, list(sources), in_flight, workers)
        self.wait(_PATIENCE_S)

    def decode(self) -> LoopRun:
        """Decodes all sources once."""
        run: LoopRun = self.call("run", timeout_s=_PATIENCE_S)
        return run


class ClosedLoop(Observer):
    """The engine with the limits of a server: no gRPC, no text; a request for each that ends."""

    def __init__(
        self, artifact: Path, sources: list[list[int]], in_flight: int, workers: int | None
    ) -> None:
        """Starts the engine; as many workers as a server has if None."""
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
        gc_freeze()

    def run(self) -> LoopRun:
        """Decodes all sources once."""
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
            sources=len(self._sources),
            tokens=self._tokens,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
            step_s=self.step_s,
            outside_s=self.outside_s,
        )

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """Adds up the time of steps."""
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
