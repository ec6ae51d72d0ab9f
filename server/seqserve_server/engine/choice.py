"""What one request's rows say next: between its search and the arrays of all rows."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from seqserve_server.engine.cache import Array, SlotCache
from seqserve_server.engine.request import Hypothesis


class Choice(NamedTuple):
    """How the rows of a request go on."""

    parents: list[int]
    """The row, of those the request has, that each of its next rows continues."""
    words: list[int]
    """The word that each of them says."""
    finished: list[Hypothesis]
    """The whole answer, best first, once no row goes on."""


class Candidate(NamedTuple):
    """A continuation of a beam."""

    beam: int
    word: int
    log_probability: float


class View:
    """The last step, as the rows of one request see it; numbered from 0."""

    def __init__(
        self, cache: SlotCache, rows: list[int], candidates: list[Candidate] | None = None
    ) -> None:
        """Takes the rows of the cache that belong to the request.

        Args:
            cache: Of all rows.
            rows: Those of the request.
            candidates: Continuations of its beams, where they have been ranked already.
        """
        self._cache = cache
        self._rows = rows
        self.candidates = candidates

    def word(self, row: int) -> int:
        """Gives the most probable word."""
        return int(self._cache.tokens[self._rows[row], 0])

    def log_probability(self, row: int) -> float:
        """Gives the log-probability of the most probable word."""
        return float(self._cache.log_probabilities[self._rows[row]])

    def best(self, count: int) -> tuple[Array, Array]:
        """Gives the most probable words of each row and their log-probabilities, ``[R, count]``."""
        words, log_probabilities = self._cache.best(self._rows)
        return words[:, :count], log_probabilities[:, :count]

    def scores(self, row: int) -> Array:
        """Gives the scores of all words, ``[V]``; only where they were asked for."""
        return self._cache.scores(self._rows[row])


class RequestSearch(Protocol):
    """Searches for one request."""

    ranked: int
    """Best words that it needs of each step."""
    shows_scores: bool
    """Whether it needs the scores of all words."""

    bans_some: bool
    """Whether there ever is something that its rows must not say."""

    def bans(self) -> list[list[int]]:
        """Lists for each of its rows what it must not say next."""

    def choose(self, view: View) -> Choice:
        """Takes in a step."""
