"""Encodes the sources of new requests, several at once where that makes each of them cheaper."""

import logging
import time

from seqserve_server.engine.observer import Observer
from seqserve_server.engine.packing import EncodedSource, EncodingLimits
from seqserve_server.engine.queue.scheduler import Scheduler
from seqserve_server.engine.request import Request
from seqserve_server.engine.runtime import Runtime

# Only attention pays for padding: sources up to this many times as long as the shortest share it.
_MAX_PADDED = 2

_log = logging.getLogger(__name__)


class SourceEncoder:
    """Encodes for one worker."""

    def __init__(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        limits: EncodingLimits,
        observer: Observer,
        worker: int = 0,
    ) -> None:
        self._runtime = runtime
        self._scheduler = scheduler
        self._limits = limits
        self._observer, self._worker = observer, worker
        self._steps_waited = 0

    def waits_for_company(self, busy: int) -> bool:
        """Returns whether sources wait a step for others; ``busy`` rows shorten that."""
        if (
            not self._scheduler.has_to_encode
            or self._scheduler.queue_depth >= self._limits.group_sources
            or self._steps_waited >= busy // self._limits.rows_for_a_step
        ):
            self._steps_waited = 0
            return False
        self._steps_waited += 1
        return True

    def encode(self, new: list[Request]) -> float:
        """Encodes the sources of requests, and of those that come next; returns seconds of running.

        A request whose source cannot be encoded is left without one.
        """
        tokens = sum(len(request.spec.source) for request in new)
        left = self._limits.group_tokens - tokens
        ahead = self._scheduler.take_ahead(left, self._worker) if left > 0 else []
        duration_s = sum(self._encode(group) for group in _grouped_by_length(new + ahead))
        if ahead:
            self._scheduler.note_encoded(ahead)
        return duration_s

    def _encode(self, requests: list[Request]) -> float:
        """Encodes sources together; after a fault one by one, so that only the faulty one fails.

        Raises the fault where no other source could be encoded either.
        """
        began_s = time.perf_counter()
        try:
            cross_kv = self._runtime.encode([request.spec.source for request in requests])
        except Exception:
            if not self._runtime.is_usable():
                raise
            if len(requests) > 1:
                return sum(self._encode([request]) for request in requests)
            [request] = requests
            # One that waits is tried again when it has a slot.
            if not request.is_encoded_ahead:
                _log.exception(
                    "request %s: a source of %d tokens could not be encoded",
                    request.spec.call_id,
                    len(request.spec.source),
                )
            return 0.0
        duration_s = time.perf_counter() - began_s
        for index, request in enumerate(requests):
            request.encoded = EncodedSource(cross_kv, index)
        self._observer.encoded([len(request.spec.source) for request in requests], duration_s)
        return duration_s


def _grouped_by_length(requests: list[Request]) -> list[list[Request]]:
    groups: list[list[Request]] = []
    for request in sorted(requests, key=lambda request: len(request.spec.source)):
        shortest = groups[-1][0] if groups else None
        if shortest and len(request.spec.source) <= _MAX_PADDED * len(shortest.spec.source):
            groups[-1].append(request)
        else:
            groups.append([request])
    return groups
