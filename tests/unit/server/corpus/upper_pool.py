"""A pool that answers without a model, so that a test decides what is answered and when."""

from collections.abc import Sequence
from concurrent.futures import Future

from seqserve.errors import SeqserveError
from seqserve_server.corpus.corpus_file import Answer, failed


class Broken(SeqserveError):
    """What stands for a process that was killed."""


class UpperPool:
    """Answers with capital letters; a text with a question mark fails."""

    engines = 1

    def __init__(self, *, breaks_after: int = 1_000_000) -> None:
        """Breaks down once it was handed so many texts."""
        self.texts: list[str] = []
        self._breaks_after = breaks_after

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        future: Future[list[Answer]] = Future()
        self.texts += texts
        if len(self.texts) > self._breaks_after:
            future.set_exception(Broken("the pool has ended"))
        else:
            future.set_result([_answer(text) for text in texts])
        return future


def _answer(text: str) -> Answer:
    return failed("source: is a\nquestion") if "?" in text else Answer(text.upper(), -0.5)
