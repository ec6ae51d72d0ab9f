"""Decodes the tokens of an artifact in this process, on the same engine that serves it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Event, Failed, Finished
from seqserve_server.contract.limits import EngineLimits, Provider
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.engine.engine import Engine
from seqserve_server.engine.gpu.runtime import open_runtime
from seqserve_server.engine.observer import Observer
from seqserve_server.engine.request import Events, Request
from seqserve_server.engine.runtime import Runtime
from seqserve_server.text.tokenizer import Tokenizer


class PendingAnswer(Request):
    """A request whose answer a thread of this process waits for."""

    def __init__(self, spec: GenerateSpec) -> None:
        super().__init__(spec)
        self._answered: Future[Finished] = Future()

    def receive(self, event: Event) -> None:
        """Takes an event, from any thread."""
        if isinstance(event, Failed):
            self._answered.set_exception(event.error)
        elif isinstance(event, Finished):
            self._answered.set_result(event)

    def wait(self) -> Finished:
        """Waits for the last event; raises the error of a request that failed."""
        return self._answered.result()


def deliver(events: Events) -> None:
    """Hands events to their pending answers."""
    for request, event in events:
        assert isinstance(request, PendingAnswer)
        request.receive(event)


@contextmanager
def running(
    runtime: Runtime,
    tokenizer: Tokenizer,
    limits: EngineLimits,
    *,
    observer: Observer | None = None,
    requests: Sequence[PendingAnswer] = (),
) -> Iterator[Engine]:
    """Runs an engine while the context lasts; its events go to pending answers."""
    engine = Engine(runtime, limits, deliver, observer or Observer(), tokenizer.decode)
    for request in requests:
        engine.submit(request)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


def generate(engine: Engine, specs: list[GenerateSpec]) -> list[Finished]:
    """Runs requests on an engine that hands its events to :func:`deliver`.

    The answers have their attention where options need it. Raises the error of a request that
    failed.
    """
    # Sources of similar length are encoded together, and the longest ones do not come last, when
    # they would run in a small batch.
    order = sorted(range(len(specs)), key=lambda index: -len(specs[index].source))
    pending = {index: PendingAnswer(specs[index]) for index in order}
    for request in pending.values():
        engine.submit(request)
    for index, request in pending.items():
        if not request.options.needs_attention:
            continue
        answer = request.wait()
        if request.generate.lacks_attention(request.timeline):
            pending[index] = PendingAnswer(replace(request.generate, answer=answer))
            engine.submit(pending[index])
    # Backwards, so that this thread wakes about once, not once a request: it shares a lock with the
    # workers.
    answers = {index: pending[index].wait() for index in reversed(order)}
    return [answers[index] for index in range(len(specs))]


class LocalEngine:
    """Decodes many sources at once; a context manager that ends its threads."""

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 1,
        slots: int = 64,
        threads: int = 1,
        packs: bool = True,
    ) -> None:
        """Loads an artifact and starts its engine, with ``slots`` over all workers."""
        self.manifest = Manifest.load(folder)
        self.tokenizer = Tokenizer.of_artifact(folder, self.manifest)
        self.runtime = open_runtime(folder, self.manifest, Provider.CPU, threads, packs=packs)
        limits = EngineLimits(
            workers=workers, slots=slots, max_queue=1_000_000, max_source_tokens_per_step=512
        )
        self._stack = ExitStack()
        self._engine = self._stack.enter_context(running(self.runtime, self.tokenizer, limits))

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops the engine."""
        self._stack.close()

    def decode(
        self,
        sources: Sequence[list[int]],
        options: DecodingOptions | None = None,
        drafts: Sequence[tuple[int, ...]] = (),
    ) -> list[Finished]:
        """Decodes token ids, the end token last in each source; a draft is for the target of each.

        Raises InvalidRequest for a source or an option out of the model's limits.
        """
        limits = self.manifest.limits
        options = options or DecodingOptions(max_decoding_length=limits.max_target_length)
        self._check(sources, options)
        drafts = drafts or [()] * len(sources)
        specs = [
            GenerateSpec(source=source, options=options, draft=draft)
            for source, draft in zip(sources, drafts, strict=True)
        ]
        return generate(self._engine, specs)

    def _check(self, sources: Sequence[list[int]], options: DecodingOptions) -> None:
        """Refuses what does not fit a slot; the engine leaves that check to its callers."""
        limits, label = self.manifest.limits, self.manifest.label
        max_length = limits.max_target_length
        if not 1 <= options.max_decoding_length <= max_length:
            raise InvalidRequest(
                "max_decoding_length",
                f"is {options.max_decoding_length}; {label} takes 1 to {max_length}",
            )
        if options.rows > self._engine.max_rows:
            raise InvalidRequest(
                "beam_size" if options.beam_size > 1 else "num_hypotheses",
                f"takes {options.rows} slots; each worker has {self._engine.max_rows}",
            )
        for source in sources:
            if not source:
                raise InvalidRequest("source", "is empty; it has at least its end token")
            if len(source) > limits.max_source_length:
                raise InvalidRequest(
                    "source",
                    f"has {len(source)} tokens; {label} reads at most {limits.max_source_length}",
                )

    def encode(self, text: str) -> list[int]:
        """Tokenises a text and cuts it at the model's limit."""
        limit = self.manifest.limits.max_source_length
        return self.tokenizer.truncate(self.tokenizer.encode(text), limit)

    def __call__(
        self, texts: Sequence[str], /, options: DecodingOptions | None = None
    ) -> list[str]:
        """Translates texts, in order; greedily unless ``options`` say otherwise."""
        answers = self.decode([self.encode(text) for text in texts], options)
        return [self.tokenizer.decode(answer.best.token_ids) for answer in answers]
