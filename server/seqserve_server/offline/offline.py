"""Generates in this process, on the engine that serves, with what a server does for a text."""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias, Unpack, overload

from seqserve import requests, responses
from seqserve._transport.status import error_within
from seqserve.arguments import WINDOW, checked_sources
from seqserve.errors import CallError, Cancelled, invalid_argument
from seqserve.results import Result
from seqserve.v1.generation_options import GenerationOptions
from seqserve.v1.generation_pb2 import GenerateRequest, GenerateResponse
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.repository import model_folder
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.messages import Setup
from seqserve_server.features import all_features
from seqserve_server.front.call.server_call import ServerCall, ServerResources
from seqserve_server.front.config import ServeOptions
from seqserve_server.front.generate.answer import answer
from seqserve_server.front.generate.job import Window
from seqserve_server.front.generate.route import route_to
from seqserve_server.front.generate.source import read
from seqserve_server.front.models.loaded_model import LoadedModel, read_tokenizer
from seqserve_server.front.overload.memory import FairMemory
from seqserve_server.offline.loop_engine import LoopEngine
from seqserve_server.text.glossary_folder import GlossaryFolder

Outcome: TypeAlias = GenerateResponse | CallError
"""The response to a text, or its own error."""

# More than in a server, because no caller waits for the next token.
_MAX_SOURCE_TOKENS_PER_STEP = 512
_UNLIMITED = 1_000_000
_CLOSED = ("CANCELLED", "the model is closed")
_UNLIMITED_BYTES = 1 << 60


class Offline:
    """A model in this process; what it answers is what a server answers, to the character.

    Example::

        with Offline("en-de") as offline:
            for result in offline.generate(["The coffee tastes good.", "It rains."]):
                print(result.text)

    Takes the options of :class:`seqserve.Client`, see ``docs/decoding.md``. Any number of threads
    may call it at the same time; their texts share the running batch.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | None = None,
        *,
        repository: str | os.PathLike[str] | None = None,
        provider: Provider = Provider.CPU,
        workers: int | None = None,
        threads: int = 1,
        slots: int | None = None,
        glossaries: str | os.PathLike[str] | None = None,
        packs: bool = True,
    ) -> None:
        """Loads a model, verifies it as a server does, and starts its workers.

        Args:
            model: Folder of a version or of a model, or the name of a model of the repository; the
                highest version where none is named. By default the repository's default model.
            repository: Folder of models; if None, the default of a server: ``models``, or else the
                model of the wheel.
            provider: What runs the graphs.
            workers: Threads that run steps, each with its own rows; if None one per core, or one
                on a GPU.
            threads: Threads within one step.
            slots: Maximum number of running rows; if None as many as of a server.
            glossaries: Folder of glossaries that options may name.
            packs: Whether to run on packed copies of the weights: faster, and twice the memory.

        Raises:
            OptionError: There is no such model or folder, or a GPU is to have several workers.
            InvalidArgument: A number is less than 1.
            ArtifactError: The model is damaged, or its caches do not fit into memory.
            ProviderError: The provider is not available.
        """
        for name, number in (("workers", workers), ("threads", threads), ("slots", slots)):
            if number is not None and number < 1:
                raise invalid_argument(name, f"{number} is less than 1")
        folder = model_folder(
            None if model is None else Path(model), None if repository is None else Path(repository)
        )
        listed = GlossaryFolder(None if glossaries is None else Path(glossaries))
        listed.open()
        self._features = all_features(listed)
        options = ServeOptions(provider=provider, workers=workers, threads=threads, slots=slots)
        limits = replace(
            options.engine_limits(),
            max_source_tokens_per_step=_MAX_SOURCE_TOKENS_PER_STEP,
            # Its callers wait for their answers, and so bound what waits here.
            max_queue=_UNLIMITED,
            max_queue_tokens=float("inf"),
            max_queue_s=float("inf"),
            caller_share=1.0,
        )
        manifest = Manifest.read(folder)
        tokenizer = read_tokenizer(folder, manifest)
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        try:
            self._engine = LoopEngine(
                Setup(folder, provider, threads, limits, packs=packs), self._loop
            )
        except BaseException:
            self._runner.close()
            raise
        self._model = LoadedModel(manifest=manifest, tokenizer=tokenizer, engine=self._engine)
        # Its callers bound what they ask for.
        memory = ServerResources(answers=FairMemory(_UNLIMITED_BYTES))
        self._call = ServerCall(path="", request_id="offline", resources=memory)
        self._lock = threading.Lock()
        self._is_closed = False
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="seqserve-offline", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        # At its end it cancels the tasks of texts without an answer, and they their requests.
        with self._runner:
            self._runner.run(self._closing.wait())

    @property
    def manifest(self) -> Manifest:
        """Description of the model: its name, version, limits and recommended options."""
        return self._model.manifest

    @overload
    def generate(  # type: ignore[overload-overlap]
        self, texts: str, **options: Unpack[GenerationOptions]
    ) -> Result: ...

    @overload
    def generate(
        self, texts: Iterable[str], **options: Unpack[GenerationOptions]
    ) -> list[Result]: ...

    def generate(
        self, texts: str | Iterable[str], **options: Unpack[GenerationOptions]
    ) -> Result | list[Result]:
        """Generates from a text, or from many at once; the results are in the order of the texts.

        Takes the options of :class:`~seqserve.GenerateOptions`.

        Raises:
            InvalidArgument: An option or a text is wrong; the error names the field.
            TypeError: There is no such option.
            CallError: A text could not be answered; the error has a note that tells which.
        """
        results = []
        with_one = [texts] if isinstance(texts, str) else texts
        for number, outcome in enumerate(self.generate_iter(with_one, **options)):
            if isinstance(outcome, CallError):
                if not isinstance(texts, str):
                    outcome.add_note(f"It is of the text at index {number}.")
                raise outcome
            results.append(outcome)
        return results[0] if isinstance(texts, str) else results

    def generate_iter(
        self, texts: Iterable[str], **options: Unpack[GenerationOptions]
    ) -> Generator[Result | CallError, None, None]:
        """Generates from any number of texts; yields each result, or its error, in their order.

        Texts are read as the results of earlier ones are taken, a few hundred ahead, in the thread
        of the caller: an endless iterable needs no more memory than a short one. Leaving the loop,
        or closing the iterator, cancels what is in flight. Options and other errors are those of
        :meth:`generate`.
        """
        return _results(self.outcomes(checked_sources(texts), template_of(options)))

    def outcomes(
        self, texts: Iterable[str], template: GenerateRequest
    ) -> Generator[Outcome, None, None]:
        """Answers texts as :meth:`generate_iter` does, with messages of ``seqserve.v1``."""
        most = WINDOW * self._engine.capacity.slots
        waiting: deque[Future[list[Outcome]]] = deque()
        try:
            for text in texts:
                waiting.append(self.begin([text], template))
                while waiting and (len(waiting) >= most or waiting[0].done()):
                    yield from _taken(waiting.popleft())
            while waiting:
                yield from _taken(waiting.popleft())
        finally:
            for future in waiting:
                future.cancel()

    def begin(self, texts: Sequence[str], template: GenerateRequest) -> Future[list[Outcome]]:
        """Begins to answer texts, all at once; cancelling the future cancels what is in flight."""
        with self._lock:
            if self._is_closed:
                raise Cancelled(*_CLOSED)
            return asyncio.run_coroutine_threadsafe(self._all(texts, template), self._loop)

    async def _all(self, texts: Sequence[str], template: GenerateRequest) -> list[Outcome]:
        if not texts:
            return []
        call, half = self._call.child(), len(texts) // 2
        outcomes: dict[int, Outcome] = {}
        try:
            of_texts: Any = requests.with_sources if half else requests.with_source
            request = of_texts(template, texts if half else texts[0])
            route = route_to([self._model], request, self._features, call, is_bulk=True)
            job = await read(request, route, call)
            # Sources of similar length are encoded together.
            order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
            sources, places = [job.sources[place] for place in order], iter(order)
            answers = Window(len(texts)).in_order(sources, partial(answer, job))
            async with aclosing(answers):
                async for each in answers:
                    try:
                        outcomes[next(places)] = each.result()
                    except ServiceError as error:
                        outcomes[next(places)] = error_within(call.failed(error))
        except CallError as error:
            outcomes[0] = error
        except ServiceError as error:
            outcomes[0] = error_within(call.failed(error))
        finally:
            call.release_memory()
        if len(outcomes) < len(texts):
            # The cause may be a single text, or the size of all together.
            halves = texts[:half], texts[half:]
            return [each for texts in halves for each in await self._all(texts, template)]
        return [outcomes[place] for place in range(len(texts))]

    def close(self) -> None:
        """Ends the threads; texts that have no answer yet fail. Again does nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()
        self._engine.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _results(
    outcomes: Generator[Outcome, None, None],
) -> Generator[Result | CallError, None, None]:
    with closing(outcomes):
        for outcome in outcomes:
            if isinstance(outcome, CallError):
                yield outcome
            else:
                yield responses.result_of(outcome)


def template_of(options: GenerationOptions) -> GenerateRequest:
    """Builds the request of every text from its options."""
    for name in options:
        if name not in GenerationOptions.__annotations__:
            raise requests.unknown_option(name, [*GenerationOptions.__annotations__])
    return requests.generate_request("", **options)


def _taken(future: Future[list[Outcome]]) -> list[Outcome]:
    try:
        return future.result()
    except CancelledError:
        raise Cancelled(*_CLOSED) from None
