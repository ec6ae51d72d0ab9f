"""One document on its way through a bulk call: its passages, and their answers in order.

Early outcomes wait for the ones before them. Their number is bounded, because sources are read only
a limited distance ahead of the next outcome.
"""

import threading
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from seqserve import Client
from seqserve.arguments import WINDOW, GenerateOptions
from seqserve.command.advice import raise_if_fatal
from seqserve.command.progress import Progress
from seqserve.command.writers import Outcome, Writer
from seqserve.documents.passage import Passage, parts_of, source_of, translation_of
from seqserve.errors import CallError
from seqserve.results import Result

A = TypeVar("A")
R = TypeVar("R")
_Item: TypeAlias = tuple[list[Passage], Passage]


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentRun:
    """Sends the passages of a document and hands their answers to a writer, in order."""

    client: Client
    writer: Writer
    progress: Progress
    concurrency: int
    timeout_s: float | None
    call: GenerateOptions
    """Options of each passage."""

    def run(self, passages: Iterable[Passage]) -> None:
        """Answers all passages."""
        with closing(self._answered(passages)) as answered:
            for passage, outcome in answered:
                is_aligned = isinstance(outcome, Result) and translation_of(outcome).alignment
                if passage.split_passages and outcome is not None and not is_aligned:
                    # Its markup cannot be placed: the model shows no attention.
                    with closing(self._answered(parts_of(passage))) as parts:
                        for part, answer in parts:
                            self.writer.write(part, answer)
                else:
                    self.writer.write(passage, outcome)
                if outcome is not None:
                    self.progress.advance()

    def _answered(
        self, passages: Iterable[Passage]
    ) -> Generator[tuple[Passage, Outcome], None, None]:
        """Yields every passage with its outcome, in order; raises what concerns every passage."""
        rest: list[Passage] = []
        order = InOrder(self._items(passages, rest), WINDOW * self.concurrency)
        bulk = self.client.generate_bulk(
            (source_of(passage) for _, passage in order.sources()),
            concurrency=self.concurrency,
            timeout_s=self.timeout_s,
            **self.call,
        )
        with closing(bulk), closing(order.restored(bulk)) as outcomes:
            for (before, sent), outcome in outcomes:
                for passage in before:
                    yield passage, None
                if isinstance(outcome, CallError):
                    raise_if_fatal(outcome)
                yield sent, outcome
        for passage in rest:
            yield passage, None

    def _items(self, passages: Iterable[Passage], rest: list[Passage]) -> Iterator[_Item]:
        """Yields what is sent; other passages go with the next one and take no room.

        ``rest`` gets the passages after the last one that is sent.
        """
        before: list[Passage] = []
        for passage in passages:
            if self.writer.is_sent(passage):
                yield before, passage
                before = []
            else:
                before.append(passage)
        rest += before


class InOrder(Generic[A]):
    """Hands out sources, perhaps to another thread, and pairs them with their outcomes."""

    def __init__(self, sources: Iterable[A], max_ahead: int) -> None:
        """Reads nothing yet; ``max_ahead`` sources may be read before their outcome is yielded."""
        self._input = sources
        self._sources: dict[int, A] = {}
        self._window = threading.Semaphore(max_ahead)
        self._is_over = False

    def sources(self) -> Iterator[A]:
        """Yields the sources, each as soon as the window has room for it."""
        self._window.acquire()
        for index, source in enumerate(self._input):
            self._sources[index] = source
            yield source
            self._window.acquire()
            if self._is_over:
                return

    def restored(self, outcomes: Iterable[tuple[int, R]]) -> Generator[tuple[A, R], None, None]:
        """Yields each source with its outcome, in the order of the sources."""
        early: dict[int, R] = {}
        next_index = 0
        try:
            for index, outcome in outcomes:
                early[index] = outcome
                while next_index in early:
                    yield self._sources.pop(next_index), early.pop(next_index)
                    self._window.release()
                    next_index += 1
        finally:
            self._is_over = True
            self._window.release()
