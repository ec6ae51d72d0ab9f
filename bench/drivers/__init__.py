"""The engines that are compared, with one interface: start, decode rows, stop.

Standard library only: drivers that run in another environment import it there.
"""

import gc
from abc import ABC, abstractmethod
from collections.abc import Sequence, Sized
from typing import Generic, Self, TypeVar

Row = TypeVar("Row", bound=Sized)
"""A source or a target: token ids, or a text."""
Rows = list[list[int]]


class Closing:
    """Is closed at the end of its ``with`` statement."""

    def close(self) -> None:
        """Releases processes, threads and memory."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Driver(Closing, ABC, Generic[Row]):
    """An engine that was started with a number of rows in flight.

    Sources of token ids have the end token last; targets leave it out.
    """

    name: str

    @abstractmethod
    def decode(self, sources: Sequence[Row]) -> list[Row]:
        """Decodes any number of sources, shared out over all workers."""

    def decode_batch(self, sources: Sequence[Row]) -> list[Row]:
        """Decodes one batch on one worker; each worker may have a thread that calls it."""
        return self.decode(sources)


def gc_freeze() -> None:
    """Keeps the garbage collector from objects made until now, as the processes of a server do.

    A collection that walks all of torch takes 0.2 s, and stops every worker that needs Python.
    Called again, it first collects what was kept before and is in use no more.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
