"""The cache of answers: an answer depends only on the version, the source and the options.

All versions share one bound in bytes; the least recently used answer goes first. The client is part
of the key, so the time of an answer reveals nothing about other clients, unless all clients share
their answers. Answers are stored pickled: small, of known size, and each caller gets its own copy.
Used in the event loop.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from seqserve_server.contract.events import Finished, StopReason
from seqserve_server.contract.limits import CacheScope
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.stats import CacheCounts

# Memory of the key, of the two objects around an answer, and of the entry in the dictionary.
_ENTRY_BYTES = 400


class _Stored(NamedTuple):
    owner: VersionAnswers
    data: bytes

    @property
    def held_bytes(self) -> int:
        return len(self.data) + _ENTRY_BYTES


class AnswerCache:
    """The cached answers of a server."""

    def __init__(
        self,
        max_bytes: int,
        counts_of: Callable[[str, int], CacheCounts],
        scope: CacheScope = CacheScope.CALLER,
    ) -> None:
        """Starts empty; ``counts_of`` returns the counts of a model and version."""
        self._max_bytes = max_bytes
        self.scope = scope
        self._counts_of = counts_of
        self._numbers = itertools.count()
        # The least recently used answer is the first.
        self._stored: OrderedDict[bytes, _Stored] = OrderedDict()
        self._held_bytes = 0

    def version(self, model: str, version: int) -> VersionAnswers:
        """Begins the answers of a version that was loaded."""
        return VersionAnswers(self, next(self._numbers), self._counts_of(model, version))

    def get(self, key: bytes) -> bytes | None:
        """Returns an answer; None if it is not cached."""
        stored = self._stored.get(key)
        if stored is None:
            return None
        self._stored.move_to_end(key)
        return stored.data

    def put(self, key: bytes, owner: VersionAnswers, data: bytes) -> None:
        """Stores an answer and makes room for it, unless it is larger than the whole cache."""
        self._remove(key)
        stored = _Stored(owner, data)
        if stored.held_bytes > self._max_bytes:
            return
        self._stored[key] = stored
        self._add(stored.owner, stored.held_bytes)
        while self._held_bytes > self._max_bytes:
            oldest = next(iter(self._stored))
            self._stored[oldest].owner.counts.evictions += 1
            self._remove(oldest)

    def remove_all(self, owner: VersionAnswers) -> None:
        """Removes the answers of a version."""
        for key in [key for key, stored in self._stored.items() if stored.owner is owner]:
            self._remove(key)

    def _remove(self, key: bytes) -> None:
        if stored := self._stored.pop(key, None):
            self._add(stored.owner, -stored.held_bytes)

    def _add(self, owner: VersionAnswers, size: int) -> None:
        self._held_bytes += size
        owner.counts.held_bytes += size


class VersionAnswers:
    """The cached answers of one loaded version."""

    def __init__(self, cache: AnswerCache, number: int, counts: CacheCounts) -> None:
        self._cache = cache
        self._number = number
        self._closed = False
        self.counts = counts
        self.under_way: dict[Hashable, list[Any]] = {}
        """The calls that are in flight, with those that wait for the answer of an equal one."""

    def key_of(self, spec: GenerateSpec) -> bytes:
        """Returns a key: equal for requests in the same scope that have equal answers."""
        owner = spec.client_id if self._cache.scope is CacheScope.CALLER else None
        facts = (self._number, owner, spec.start_token, spec.options.outcome)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=32)
        digest.update(array("I", spec.source).tobytes())
        return digest.digest()

    def get(self, key: bytes) -> Finished | None:
        """Returns an answer; None if it is not cached."""
        data = self._cache.get(key)
        if data is None:
            return None
        answer: Finished = pickle.loads(data)
        return answer

    def keep(self, key: bytes, answer: Finished) -> None:
        """Stores a whole answer, unless a time limit cut it short."""
        reasons = {hypothesis.stop_reason for hypothesis in answer.hypotheses}
        if not self._closed and StopReason.TIME_LIMIT not in reasons:
            self._cache.put(key, self, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))

    def close(self) -> None:
        """Removes all answers and stores no more: the version is unloaded."""
        self._closed = True
        self._cache.remove_all(self)
