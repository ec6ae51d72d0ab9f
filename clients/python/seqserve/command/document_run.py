"""One document on its way through a bulk call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace

from seqserve import Client
from seqserve.arguments import WINDOW
from seqserve.command.advice import raise_if_fatal
from seqserve.command.line_numbers import LineNumbers
from seqserve.command.order import Order
from seqserve.command.output_file import Output
from seqserve.command.progress import Progress
from seqserve.decoding import GenerateOptions
from seqserve.documents.passage import Link, Passage, Translation
from seqserve.errors import CallError
from seqserve.results import Hypothesis, Result


@dataclass(frozen=True, slots=True)
class _Item:
    """A passage to send, and all that is written before it."""

    before: list[Passage]
    passage: Passage


class DocumentRun:
    """Sends the passages of a document and writes their translations in order."""

    def __init__(self, name: str, passages: Iterator[Passage], output: Output) -> None:
        """Takes the document's name for reports, its passages, and where they are written."""
        self._name = name
        self._passages = passages
        self._output = output
        # What follows the last passage that is sent.
        self._rest: list[Passage] = []
        self.count = 0
        """Passages so far."""
        self.failed = LineNumbers()
        """Lines of the passages that failed."""

    def is_open(self, passage: Passage) -> bool:
        """Tells whether a passage has to be sent."""
        has_text = bool(passage.text) and not passage.fault
        return has_text and self._known(passage) is None

    def translate(
        self, client: Client, call: GenerateOptions, concurrency: int, progress: Progress
    ) -> None:
        """Translates the whole document.

        Raises:
            CallError: No passage can be translated.
            OptionError: The document cannot be read.
        """
        order = Order(self._items(), WINDOW * concurrency)
        sources = (_source(item.passage) for item in order.sources())
        bulk = client.generate_bulk(sources, concurrency=concurrency, **call)
        with closing(bulk), closing(order.restored(bulk)) as outcomes:
            for item, outcome in outcomes:
                for passage in item.before:
                    self._write_known(passage)
                parts = self._parts(item.passage, outcome)
                if parts:
                    self._write_parts(item.passage, parts, client, call, progress)
                else:
                    self._write(item.passage, outcome, progress)
                progress.advance()
        progress.clear()
        for passage in self._rest:
            self._write_known(passage)

    def _items(self) -> Iterator[_Item]:
        """Yields what is sent; what is not goes with the next one, and takes no room of its own."""
        before: list[Passage] = []
        for passage in self._passages:
            if self.is_open(passage):
                yield _Item(before, passage)
                before = []
            else:
                before.append(passage)
        self._rest = before

    def _known(self, passage: Passage) -> Translation | None:
        """Returns a translation that an earlier run has made, if it is of use for a passage."""
        known = self._output.known(passage.text)
        return known if known is None or known.alignment or not passage.divided else None

    def _write_known(self, passage: Passage) -> None:
        """Writes a passage that is not sent: it is known, has no text, or cannot be translated."""
        known = self._known(passage) if passage.text else None
        if passage.fault:
            self._fail(passage, passage.fault)
        else:
            self.count += bool(passage.text)
            text = passage.source if known is None else passage.written(known)
            self._output.write(passage.before + text)

    def _parts(self, passage: Passage, outcome: Result | CallError) -> list[Passage]:
        """Divides a passage whose markup cannot be placed: the model shows no attention."""
        if passage.divided is None:
            return []
        is_placed = isinstance(outcome, Result) and _translation(outcome).alignment
        return [] if is_placed else list(passage.divided())

    def _write_parts(
        self,
        passage: Passage,
        parts: list[Passage],
        client: Client,
        call: GenerateOptions,
        progress: Progress,
    ) -> None:
        """Translates the parts of a passage and writes them."""
        self._output.write(passage.before)
        parts = [replace(part, line=passage.line + part.line - 1) for part in parts]
        sent = [part for part in parts if self.is_open(part)]
        outcomes = dict(client.generate_bulk([part.text for part in sent], **call))
        numbers = {id(part): number for number, part in enumerate(sent)}
        for part in parts:
            if id(part) in numbers:
                self._write(part, outcomes[numbers[id(part)]], progress)
            else:
                self._write_known(part)

    def _write(self, passage: Passage, outcome: Result | CallError, progress: Progress) -> None:
        if isinstance(outcome, CallError):
            raise_if_fatal(outcome)
            progress.clear()
            self._fail(passage, str(outcome))
            return
        translation = _translation(outcome)
        text = passage.written(translation)
        try:
            text.encode(self._output.encoding)
        except UnicodeEncodeError as error:
            progress.clear()
            unknown = error.object[error.start]
            self._fail(passage, f"its translation has {unknown!r}, not in {self._output.encoding}")
            return
        self.count += 1
        self._output.remember(passage.text, translation)
        self._output.write(passage.before + text)

    def _fail(self, passage: Passage, why: str) -> None:
        self.count += 1
        self.failed.add(passage.line)
        self._output.write(passage.before + passage.source)
        print(f"seqserve: {self._name}: line {passage.line}: {why}", file=sys.stderr, flush=True)


def _source(passage: Passage) -> str | tuple[str, GenerateOptions]:
    return (passage.text, {"return_alignment": True}) if passage.divided else passage.text


def _translation(result: Result) -> Translation:
    """Takes the translation of a passage, whose alignment is that of its segments."""
    links = _links(result.hypotheses[0], 0, 0)
    for segment in result.segments:
        source, target = segment.source_begin, segment.target_begin
        if segment.hypotheses:
            links += _links(segment.hypotheses[0], source, target)
        else:
            # It is in the text as it is.
            places = range(segment.source_end - source)
            links += [Link(source + n, source + n + 1, target + n, target + n + 1) for n in places]
    return Translation(result.text, tuple(links))


def _links(hypothesis: Hypothesis, source: int, target: int) -> list[Link]:
    """Places the alignment of a segment that begins there in the whole text."""
    return [
        Link(
            source + token.source_begin,
            source + token.source_end,
            target + token.target_begin,
            target + token.target_end,
        )
        for token in hypothesis.alignment
    ]
