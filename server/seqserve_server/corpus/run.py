"""One run over a corpus, which goes on where an earlier one was broken off.

The journal has the answer of every place in its order, each with a hash of its text. A run reads
it along with the corpus up to the first text that is another one, answers the texts after that,
and writes the output from both at the end. So each place has one answer, whatever happened.
"""

import re
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from seqserve.command.journal import JournalFile, key_of
from seqserve.command.progress import Progress
from seqserve.errors import OptionError
from seqserve.files import written_whole
from seqserve_server.corpus.corpus_file import NOTHING, Answer, CorpusFile, Place, failed
from seqserve_server.corpus.engine import Pool

C = TypeVar("C")

_CHUNKS_PER_ENGINE = 4
"""Chunks in flight for each engine: its batch stays full while one of them has a long text."""
_CHUNK_TEXTS, _CHUNK_CHARACTERS = 128, 100_000


class CorpusRun:
    """A corpus, its journal and its output."""

    def __init__(self, corpus: CorpusFile, journal: JournalFile, out: Path) -> None:
        self._corpus, self._journal, self._out = corpus, journal, out
        self._list = failures_of(out)
        self.answered = 0
        """How many places the journal has the answers of."""

    def go_on(self) -> None:
        """Finds what earlier runs have answered."""
        self.answered = sum(1 for _ in _known(self._journal, self._corpus.places()))

    def answer(self, pool: Pool, progress: Progress) -> None:
        """Answers all places that have no answer yet; an error loses nothing of the journal."""
        rest = islice(self._corpus.places(), self.answered, None)
        chunks = in_order(pool, _chunks(rest), _texts)
        with closing(chunks):
            for chunk, answers in chunks:
                entries = zip(chunk, _placed(chunk, answers), strict=True)
                self._journal.append(
                    *([key_of(each.text).hex(), *answer] for each, answer in entries)
                )
                self.answered += len(chunk)
                progress.advance(len(chunk))

    def write(self) -> int:
        """Writes the output, and next to it a list of failures; returns their number."""
        count = 0
        if any(answer.fault for answer in self._answers()):
            with written_whole(self._list, "w", option="OUT") as file:
                for number, answer in enumerate(self._answers(), start=1):
                    if answer.fault:
                        count += 1
                        print(number, " ".join(answer.fault.split()), sep="\t", file=file)
        else:
            # Of an earlier output.
            self._list.unlink(missing_ok=True)
        self._corpus.write(self._out, self._answers())
        return count

    def _answers(self) -> Iterator[Answer]:
        for _, entry in islice(self._journal.entries(), self.answered):
            yield Answer(*entry[1:])


def failures_of(out: Path) -> Path:
    """Returns the file that lists what failed; OptionError if another file has its name."""
    place = out.with_name(f"{out.name}.failed")
    reason = "is not the list of failed texts that belongs there; move it away"
    try:
        with place.open("rb") as lines:
            if all(re.match(rb"[1-9][0-9]*\t", line) for line in lines):
                return place
    except FileNotFoundError:
        return place
    except OSError as error:
        reason = str(error.strerror)
    raise OptionError(f"OUT: {place}: {reason}")


def _known(journal: JournalFile, places: Iterable[Place]) -> Iterator[Place]:
    with closing(journal.entries()) as entries:
        for (number, entry), place in zip(entries, places, strict=False):
            if not _is_answer(entry):
                journal.damaged_line = number
                return
            if entry[0] != key_of(place.text).hex():
                return
            yield place


def _is_answer(entry: list[Any]) -> bool:
    if len(entry) != 4:
        return False
    _, text, score, fault = entry
    return (
        isinstance(text, str | None) and isinstance(score, float | None) and isinstance(fault, str)
    )


def _chunks(places: Iterable[Place]) -> Generator[list[Place], None, None]:
    chunk: list[Place] = []
    characters = 0
    for place in places:
        chunk.append(place)
        characters += len(place.text)
        if len(chunk) >= _CHUNK_TEXTS or characters >= _CHUNK_CHARACTERS:
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _is_sent(place: Place) -> bool:
    return bool(place.text.strip()) and not place.fault


def _texts(chunk: list[Place]) -> list[str]:
    return [place.text for place in chunk if _is_sent(place)]


def _placed(chunk: list[Place], answers: Iterable[Answer]) -> Iterator[Answer]:
    left = iter(answers)
    for place in chunk:
        if place.fault:
            yield failed(place.fault)
        else:
            yield next(left) if _is_sent(place) else NOTHING


def in_order(
    pool: Pool, chunks: Iterable[C], texts_of: Callable[[C], Sequence[str]]
) -> Generator[tuple[C, list[Answer]], None, None]:
    """Yields chunks with the answers to their texts, in order; few chunks are read ahead."""
    waiting: deque[tuple[C, Future[list[Answer]]]] = deque()
    for chunk in chunks:
        waiting.append((chunk, pool.submit(texts_of(chunk))))
        while waiting and (
            len(waiting) >= _CHUNKS_PER_ENGINE * pool.engines or waiting[0][1].done()
        ):
            first, future = waiting.popleft()
            yield first, future.result()
    for chunk, future in waiting:
        yield chunk, future.result()
