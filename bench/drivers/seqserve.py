"""This project's engine, without gRPC: as a driver, and alone in a separate process."""

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench.drivers import Driver, Rows, gc_freeze
from bench.drivers.subprocess_driver import RemoteObject
from bench.requests import MAX_DECODING_LENGTH
from seqserve.processes import available_cores
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.limits import EngineLimits
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.local_engine import LocalEngine, PendingAnswer, running
from seqserve_server.engine.observer import Observer
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
        self.engine = LocalEngine(folder, workers=workers, slots=rows * options.rows * workers)
        manifest = self.engine.manifest
        has_shortlist = manifest.shortlist is not None and options.shortlist
        self.name = f"seqserve {manifest.precision}" + " with shortlist" * has_shortlist

    def decode(self, sources: Sequence[list[int]]) -> Rows:
        """Lets all sources wait; rows join as others leave."""
        return [answer.best.token_ids for answer in self.engine.decode(sources, self._options)]

    def close(self) -> None:
        """Stops the workers."""
        self.engine.close()


class TextDriver(Driver[str]):
    """The engine with the tokenizer of its artifact; owns the driver."""

    def __init__(self, driver: SeqserveDriver, name: str) -> None:
        self.name, self._driver = name, driver

    def decode(self, sources: Sequence[str]) -> list[str]:
        """Translates texts, in order."""
        engine = self._driver.engine
        targets = self._driver.decode(list(map(engine.encode, sources)))
        return list(map(engine.tokenizer.decode, targets))

    def close(self) -> None:
        """Stops the workers."""
        self._driver.close()


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
    """A :class:`ServingEngine` in a separate process."""

    def __init__(
        self,
        artifact: Path,
        sources: Sequence[list[int]],
        in_flight: int,
        workers: int | None = None,
    ) -> None:
        super().__init__("engine", ServingEngine, artifact, list(sources), in_flight, workers)
        self.receive(_PATIENCE_S)

    def decode(self) -> LoopRun:
        """Decodes all sources once."""
        run: LoopRun = self.call("run", timeout_s=_PATIENCE_S)
        return run


class ServingEngine(Observer):
    """The engine of a server: no gRPC, no text; another source begins for each that ends."""

    def __init__(
        self, artifact: Path, sources: list[list[int]], in_flight: int, workers: int | None
    ) -> None:
        """Starts the engine; as many workers as a server has if None."""
        self._lock = threading.Lock()
        # As the callers of the server.
        decoding = DecodingOptions(max_decoding_length=MAX_DECODING_LENGTH, return_scores=False)
        self._specs = [GenerateSpec(source=source, options=decoding) for source in sources]
        options = ServeOptions(workers=workers)
        limits = EngineLimits(
            workers=options.worker_count(),
            slots=min(in_flight, options.slot_count()),
            max_queue=len(sources),
            max_source_tokens_per_step=options.max_source_tokens_per_step,
        )
        manifest = Manifest.load(artifact)
        runtime = Runtime(artifact, manifest, options.provider, options.threads)
        tokenizer = Tokenizer.of_artifact(artifact, manifest)
        self._stack = ExitStack()
        self._engine = self._stack.enter_context(running(runtime, tokenizer, limits, observer=self))
        gc_freeze()

    def run(self) -> LoopRun:
        """Decodes all sources once, in their order."""
        self.step_s = self.outside_s = 0.0
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        pending = [PendingAnswer(spec) for spec in self._specs]
        for request in pending:
            self._engine.submit(request)
        # From the last on, or this thread would wake for each and take time from the workers.
        tokens = sum(len(request.wait().best.token_ids) for request in reversed(pending))
        return LoopRun(
            sources=len(pending),
            tokens=tokens,
            wall_s=time.perf_counter() - wall_s,
            cpu_s=time.process_time() - cpu_s,
            step_s=self.step_s,
            outside_s=self.outside_s,
        )

    def stepped(self, rows: int, duration_s: float, outside_s: float) -> None:
        """Adds up the time of steps, of several workers."""
        with self._lock:
            self.step_s += duration_s
            self.outside_s += outside_s
