"""A corpus in a file: its places, the answers that take them, and files of lines, plain or JSON."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from seqserve.command.advice import raise_if_fatal
from seqserve.command.document_files import SourceFile
from seqserve.documents.json_files import DECODER, place_of, without_text
from seqserve.documents.plain_text import fault_of
from seqserve.errors import CallError, InvalidArgument
from seqserve.files import written_whole
from seqserve.v1.generation_pb2 import GenerateResponse


class Answer(NamedTuple):
    """The answer to a text, or the reason why it failed."""

    text: str | None
    """None for a text that has no answer: one that is not there, or that failed."""
    score: float | None = None
    """The normalized score; None if scores were not requested."""
    fault: str = ""
    """Why the text failed; empty if it did not."""


NOTHING = Answer(None)
"""The answer to a place without a text."""


def failed(fault: str) -> Answer:
    """Returns the answer to a text that cannot be answered."""
    return Answer(None, fault=fault)


def answer_of(outcome: GenerateResponse | CallError) -> Answer:
    """Returns the answer of a response, or of the error of its text."""
    if isinstance(outcome, InvalidArgument):
        raise_if_fatal(outcome)
        return failed(outcome.details)
    if isinstance(outcome, CallError):
        raise outcome
    best = outcome.hypotheses[0]
    return Answer(best.text, best.normalized_score if best.HasField("normalized_score") else None)


class Place(NamedTuple):
    """One place of a corpus that gets an answer: a line, an object, a row."""

    text: str = ""
    """Blank for nothing."""
    fault: str = ""
    """Why it cannot be answered; empty if it can."""


class CorpusFile(Protocol):
    """A file that can be read more than once, always with the same content."""

    unit: str
    """The word for places, in the plural."""

    def count(self) -> int:
        """Counts the places."""

    def places(self) -> Iterator[Place]:
        """Yields the places, in order."""

    def write(self, out: Path, answers: Iterable[Answer]) -> None:
        """Writes the whole corpus with its answers, one for each place."""


class LinesFile(ABC):
    """A file of lines, of which each has its place in the output."""

    unit = "lines"

    def __init__(self, path: Path) -> None:
        self._path = path

    def count(self) -> int:
        """Counts the lines."""
        return sum(1 for _ in self._lines())

    def places(self) -> Iterator[Place]:
        """Yields the place of each line."""
        return map(self._place, self._lines())

    def write(self, out: Path, answers: Iterable[Answer]) -> None:
        """Writes a line for each one of the file; they end as those do."""
        with written_whole(out, "w", newline="", option="OUT") as file:
            # Bytes that are not UTF-8 come back as they were.
            file.reconfigure(errors="surrogateescape")  # type: ignore[attr-defined]
            for line, answer in zip(self._lines(), answers, strict=True):
                body = line.rstrip("\r\n")
                file.write(self._answered(body, answer) + line[len(body) :])

    def _lines(self) -> Iterator[str]:
        with closing(SourceFile(self._path, newline="\n", is_strict=False)) as lines:
            yield from lines

    @abstractmethod
    def _place(self, line: str) -> Place:
        """Reads a line."""

    @abstractmethod
    def _answered(self, line: str, answer: Answer) -> str:
        """Writes what takes the place of a line, without its end."""


class TextFile(LinesFile):
    """Plain text: the answer replaces its line; a line without an answer becomes empty."""

    def _place(self, line: str) -> Place:
        text = line.rstrip("\r\n")
        return Place(text, fault_of(text))

    def _answered(self, line: str, answer: Answer) -> str:
        return (answer.text or "").replace("\n", " ")


class JsonLinesFile(LinesFile):
    """JSON lines: each object gets a field for its answer; other lines stay as they are."""

    def __init__(self, path: Path, field: str, into: str, *, has_scores: bool) -> None:
        super().__init__(path)
        self._field, self._into, self._has_scores = field, into, has_scores

    def _place(self, line: str) -> Place:
        if not line.strip():
            return Place()
        try:
            value = DECODER.decode(line.strip())
        except (ValueError, RecursionError) as error:
            return Place(fault=f"is not JSON: {error}")
        text = value.get(self._field) if isinstance(value, dict) else None
        if not isinstance(text, str):
            return Place(fault=without_text(value, self._field))
        return Place(text, fault_of(text))

    def _answered(self, line: str, answer: Answer) -> str:
        body = line.strip()
        try:
            value = DECODER.decode(body)
        except (ValueError, RecursionError):
            return line
        if not isinstance(value, dict):
            return line
        body = _with_field(body, value, self._into, answer.text)
        if self._has_scores and answer.score is not None and math.isfinite(answer.score):
            body = _with_field(body, value, score_field(self._into), answer.score)
        return body


def _with_field(body: str, known: Collection[str], name: str, value: object) -> str:
    written = json.dumps(value, ensure_ascii=False)
    if name in known:
        begin, end = place_of(body, name)
        return body[:begin] + written + body[end:]
    others = body[:-1].rstrip()
    comma = "" if others == "{" else ", "
    return f"{others}{comma}{json.dumps(name, ensure_ascii=False)}: {written}}}"


def score_field(into: str) -> str:
    """Returns the name of the field of scores."""
    return f"{into}_score"
