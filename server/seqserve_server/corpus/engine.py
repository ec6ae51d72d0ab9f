"""The engine of one process of a pool."""

import gc
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from seqserve.errors import SeqserveError
from seqserve.v1.generation_pb2 import GenerateRequest
from seqserve_server.contract.errors import EngineFault
from seqserve_server.corpus.corpus_file import Answer, answer_of
from seqserve_server.offline.offline import Offline, Outcome

Answered: TypeAlias = list[Answer] | SeqserveError
"""The answers to some texts, or the error that ends the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Settings of an engine, sent to its process."""

    model: str
    """Folder of the version."""
    workers: int
    slots: int | None
    glossaries: str | None
    template: GenerateRequest
    """The request of every text, without the text."""


class Pool(Protocol):
    """Several engines of one model."""

    @property
    def engines(self) -> int:
        """How many engines there are."""

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        """Hands texts to the engine with the fewest."""


class CorpusEngine:
    """An engine that has its process for itself."""

    def __init__(self, settings: EngineSettings) -> None:
        self._template = settings.template
        self._offline = Offline(
            settings.model,
            workers=settings.workers,
            slots=settings.slots,
            glossaries=settings.glossaries,
        )
        # Everything allocated so far stays, so the garbage collector need not look at it again.
        gc.collect()
        gc.freeze()

    def begin(self, texts: Sequence[str]) -> Future[Answered]:
        """Begins to answer texts; the future itself never fails."""
        answered: Future[Answered] = Future()

        def finish(outcomes: Future[list[Outcome]]) -> None:
            answered.set_result(_answered(outcomes))

        self._offline.begin(texts, self._template).add_done_callback(finish)
        return answered

    def close(self) -> None:
        """Ends the engine; what is in flight fails."""
        self._offline.close()


def _answered(outcomes: Future[list[Outcome]]) -> Answered:
    if outcomes.cancelled():
        return EngineFault("the engine was closed")
    try:
        return [answer_of(outcome) for outcome in outcomes.result()]
    except SeqserveError as error:
        return error
    except Exception as error:
        return EngineFault(f"{type(error).__name__}: {error}")
