"""One document on its way through a bulk call."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from seqserve import Client
from seqserve.arguments import WINDOW, GenerateOptions
from seqserve.command.advice import raise_if_fatal
from seqserve.command.progress import Progress
from seqserve.command.run.order import InOrder
from seqserve.documents.passage import Passage, parts_of, source_of, translation_of
from seqserve.errors import CallError
from seqserve.results import Result

Outcome: TypeAlias = Result | CallError | None
"""The result of a passage or its own error; None for a passage that was not sent."""


class Writer(Protocol):
    """Takes the passages of a document in order, with their outcomes."""

    def is_sent(self, passage: Passage) -> bool:
        """Tells whether the server is to answer a passage; the thread that reads calls it."""

    def write(self, passage: Passage, outcome: Outcome) -> None:
        """Writes the answer of a passage."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A passage to send, and the passages before it that are not sent."""

    before: list[Passage]
    passage: Passage


class DocumentRun:
    """Sends the passages of a document and hands their answers to a writer, in order."""

    def __init__(
        self,
        client: Client,
        writer: Writer,
        progress: Progress,
        *,
        concurrency: int,
        timeout_s: float | None,
        call: GenerateOptions,
    ) -> None:
        """Takes what :meth:`~seqserve.Client.generate_bulk` needs."""
        self._client = client
        self._writer = writer
        self._progress = progress
        self._concurrency = concurrency
        self._timeout_s = timeout_s
        self._call = call

    def run(self, passages: Iterable[Passage]) -> None:
        """Answers all passages.

        Raises:
            CallError: No passage can be answered.
            OptionError: The document cannot be read.
        """
        with closing(self._answered(passages)) as answered:
            for passage, outcome in answered:
                if passage.split_passages and outcome is not None and not _is_aligned(outcome):
                    # Its markup cannot be placed: the model shows no attention.
                    with closing(self._answered(parts_of(passage))) as parts:
                        for part, answer in parts:
                            self._writer.write(part, answer)
                else:
                    self._writer.write(passage, outcome)
                if outcome is not None:
                    self._progress.advance()

    def _answered(
        self, passages: Iterable[Passage]
    ) -> Generator[tuple[Passage, Outcome], None, None]:
        """Yields every passage with its outcome, in order; raises what concerns every passage."""
        rest: list[Passage] = []
        order = InOrder(self._items(passages, rest), WINDOW * self._concurrency)
        bulk = self._client.generate_bulk(
            (source_of(item.passage) for item in order.sources()),
            concurrency=self._concurrency,
            timeout_s=self._timeout_s,
            **self._call,
        )
        with closing(bulk), closing(order.restored(bulk)) as outcomes:
            for item, outcome in outcomes:
                for passage in item.before:
                    yield passage, None
                if isinstance(outcome, CallError):
                    raise_if_fatal(outcome)
                yield item.passage, outcome
        for passage in rest:
            yield passage, None

    def _items(self, passages: Iterable[Passage], rest: list[Passage]) -> Iterator[_Item]:
        """Yields what is sent; other passages go with the next one and take no room of their own.

        ``rest`` gets the passages after the last one that is sent.
        """
        before: list[Passage] = []
        for passage in passages:
            if self._writer.is_sent(passage):
                yield _Item(before, passage)
                before = []
            else:
                before.append(passage)
        rest += before


def _is_aligned(outcome: Result | CallError) -> bool:
    return isinstance(outcome, Result) and bool(translation_of(outcome).alignment)
