"""The engines that answer a corpus, and the order of their answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from seqserve_server.corpus.answer import Answer

C = TypeVar("C")

_CHUNKS_PER_ENGINE = 8
"""Chunks under way for each engine: its batch stays full while one of them has a long text."""


class Pool(Protocol):
    """Several engines of one model."""

    @property
    def engines(self) -> int:
        """How many engines there are."""

    def submit(self, texts: Sequence[str]) -> Future[list[Answer]]:
        """Hands texts to the engine with the fewest."""


def in_order(
    pool: Pool, chunks: Iterable[C], texts_of: Callable[[C], Sequence[str]]
) -> Generator[tuple[C, list[Answer]], None, None]:
    """Yields chunks with the answers to their texts, in the order of the chunks.

    Only so many chunks are read ahead as keep the engines busy.

    Raises:
        SeqserveError: The pool has failed; what was yielded before is answered.
    """
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
