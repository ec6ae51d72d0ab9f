"""A corpus in a file, whatever its format: its places, and the answers that take them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from seqserve.command.advice import raise_if_fatal
from seqserve.errors import CallError, InvalidArgument
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
