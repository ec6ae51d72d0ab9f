"""Keeps answers: an answer depends on nothing but the version, the source and the options.

All versions share one bound in bytes; the answer that was used longest ago makes room first. The
key has the client too, so nobody learns from the time of an answer what others have asked. Answers
are kept pickled: that is small, of known size, and what a caller gets is its own copy. Lives in the
event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import pickle
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from seqserve_server.contract.errors import DeadlinePassed, QueueFull, ServiceError
from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.telemetry.call_metrics import CacheCounts

# What the key, the two objects around an answer and the entry of the dictionary take.
_ENTRY_BYTES = 400


class _Kept(NamedTuple):
    owner: VersionAnswers
    data: bytes

    @property
    def held_bytes(self) -> int:
        return len(self.data) + _ENTRY_BYTES


class AnswerCache:
    """The kept answers of a server, the last used last."""

    def __init__(self, max_bytes: int, counts_of: Callable[[str, int], CacheCounts]) -> None:
        """Starts empty.

        Args:
            max_bytes: Bound of the memory of all kept answers.
            counts_of: Gives the counts of a model and version.
        """
        self._max_bytes = max_bytes
        self._counts_of = counts_of
        self._numbers = itertools.count()
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self._held_bytes = 0

    def version(self, model: str, version: int) -> VersionAnswers:
        """Begins the answers of a version that was loaded."""
        return VersionAnswers(self, next(self._numbers), self._counts_of(model, version))

    def get(self, key: bytes) -> bytes | None:
        """Returns a kept answer, which is then the last used."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        self._kept.move_to_end(key)
        return kept.data

    def put(self, key: bytes, owner: VersionAnswers, data: bytes) -> None:
        """Keeps an answer and makes room for it; one that is larger than all room is not kept."""
        self._remove(key)
        kept = _Kept(owner, data)
        if kept.held_bytes > self._max_bytes:
            return
        self._kept[key] = kept
        self._add(kept.owner, kept.held_bytes)
        while self._held_bytes > self._max_bytes:
            oldest = next(iter(self._kept))
            self._kept[oldest].owner.counts.evictions += 1
            self._remove(oldest)

    def remove_all(self, owner: VersionAnswers) -> None:
        """Removes the answers of a version."""
        for key in [key for key, kept in self._kept.items() if kept.owner is owner]:
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        if kept := self._kept.pop(key, None):
            self._add(kept.owner, -kept.held_bytes)

    def _add(self, owner: VersionAnswers, size: int) -> None:
        self._held_bytes += size
        owner.counts.held_bytes += size


class VersionAnswers:
    """The kept answers of one loaded version."""

    def __init__(self, cache: AnswerCache, number: int, counts: CacheCounts) -> None:
        """Starts empty; ``number`` tells it apart from all versions before it."""
        self._cache = cache
        self._number = number
        self._closed = False
        self.counts = counts
        self.under_way: SingleFlight[Finished] = SingleFlight()
        """Requests under way, for which equal ones wait."""

    def key_of(self, spec: GenerateSpec) -> bytes:
        """Makes the key of a request: equal for requests of one client with equal answers."""
        facts = (self._number, spec.client_id, spec.start_token, spec.options.outcome)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=32)
        digest.update(array("I", spec.source).tobytes())
        return digest.digest()

    def get(self, key: bytes) -> Finished | None:
        """Returns a kept answer."""
        data = self._cache.get(key)
        if data is None:
            return None
        answer: Finished = pickle.loads(data)
        return answer

    def keep(self, key: bytes, answer: Finished) -> None:
        """Keeps a whole answer; one that a time limit cut short is not."""
        reasons = {hypothesis.stop_reason for hypothesis in answer.hypotheses}
        if not self._closed and StopReason.TIME_LIMIT not in reasons:
            self._cache.put(key, self, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Forgets all answers and keeps no more: the version is unloaded."""
        self._closed = True
        self._cache.remove_all(self)


Answer = TypeVar("Answer")

# They depend on the deadline and the turn of a request; an equal one may be answered.
_ITS_OWN = (DeadlinePassed, QueueFull)


class SingleFlight(Generic[Answer]):
    """Runs equal requests once: the others wait for the answer of the first (single flight)."""

    def __init__(self) -> None:
        """Starts with none."""
        self._flights: dict[Hashable, asyncio.Future[Answer | ServiceError | None]] = {}

    async def join(self, key: Hashable) -> Answer | None:
        """Waits for the answer of an equal request; None if none is under way any more.

        The caller then runs its own, without waiting for anything before it calls :meth:`run`.

        Raises:
            ServiceError: The other one failed, as this one would have.
        """
        while (flight := self._flights.get(key)) is not None:
            # Whoever is cancelled leaves the others waiting.
            outcome = await asyncio.shield(flight)
            if isinstance(outcome, ServiceError):
                raise outcome
            if outcome is not None:
                return outcome
        return None

    async def run(self, key: Hashable, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Runs a request, whose answer goes to those that join it meanwhile.

        Raises:
            ServiceError: It failed.
        """
        flight = self._flights[key] = asyncio.get_running_loop().create_future()
        outcome: Answer | ServiceError | None = None
        try:
            outcome = await work()
        except ServiceError as error:
            outcome = None if isinstance(error, _ITS_OWN) else error
            raise
        finally:
            del self._flights[key]
            flight.set_result(outcome)
        return outcome
