"""Which slots bulk takes while single calls come: few of the workers that run those.

The more rows run, the longer a step takes. So single calls run on few workers, the quick ones,
which run no more rows than if all workers shared the calls, and three tenths of the slots with
bulk. The others have all of their slots for bulk, and their long steps delay no single call. Where
all workers are quick, bulk has three eighths of the slots: a token of a single call then takes half
of the time, and the bulk loses much less than it gave away.
"""

import math
from typing import NamedTuple

from seqserve_server.contract.request import Spec

SHARE = 0.375
"""Part of all slots that bulk takes while there are single calls on all workers."""
QUICK_SHARE = 0.3
"""The same of the quick workers where there are others: their calls wait for these alone."""
PATIENCE_S = 1.0
"""So long after the end of a single call another one is expected."""


class Part(NamedTuple):
    """What a worker may take."""

    rows: float
    """Slots in use up to which it takes more."""
    bulk_rows: float
    """Slots that bulk may still take."""
    has_singles: bool = True
    """Whether it takes single calls."""
    is_settled: bool = False
    """Whether it stays the same while the worker takes more: only one kind waits or runs."""
    is_apart: bool = False
    """Whether other workers are for bulk alone, or for single calls."""


class BulkShare:
    """Counts the slots in use, and divides the others among workers. Used under a lock."""

    def __init__(self, slots: int, workers: int) -> None:
        self._slots, self._workers = slots, workers
        self._rows = {is_bulk: 0 for is_bulk in (False, True)}
        self._busy = [0] * workers
        # Slots of single calls on each worker.
        self._singles = [0] * workers
        self._single_ended_s = -math.inf

    @property
    def rows(self) -> int:
        """Slots in use."""
        return sum(self._rows.values())

    def begin(self, spec: Spec, worker: int) -> None:
        """Takes the slots of a request."""
        self._rows[spec.is_bulk] += spec.rows
        self._singles[worker] += spec.rows * (not spec.is_bulk)

    def end(self, spec: Spec, worker: int, now_s: float) -> None:
        """Frees the slots of a request."""
        self._rows[spec.is_bulk] -= spec.rows
        if not spec.is_bulk:
            self._singles[worker] -= spec.rows
            self._single_ended_s = now_s

    def note(self, worker: int, busy: int) -> None:
        """Notes how many slots of a worker are in use."""
        self._busy[worker] = busy

    def part(self, worker: int, waiting: dict[bool, int], now_s: float) -> Part:
        """Returns what a worker may take of the rows that wait, which bulk has under True."""
        running = self._rows
        has_singles = running[False] or now_s < self._single_ended_s + PATIENCE_S
        # Something of it always runs, however many slots that needs.
        room = self._slots * SHARE - running[True] if has_singles and running[True] else math.inf
        to_run = waiting[False] + max(0, min(waiting[True], room))
        even = -(-(self.rows + to_run) // self._workers)
        singles = running[False] + waiting[False]
        bulk = min(running[True] + waiting[True], self._slots * QUICK_SHARE)
        quick_rows = -(-(singles + bulk) // self._workers)
        quick = math.ceil(singles / quick_rows) if singles else 1
        # A single call does not wait until bulk has left the quick ones.
        are_full = min(self._busy[:quick]) >= self._slots // self._workers
        if room == math.inf or quick >= self._workers or are_full:
            has_bulk = waiting[True] or running[True]
            is_mixed = has_bulk and (waiting[False] or has_singles)
            return Part(even, room, is_settled=room == math.inf and not is_mixed)
        quick_room = quick_rows - self._busy[worker]
        if worker < quick:
            return Part(even, quick_room, is_apart=True)
        # A single call that began here before runs as on a quick one.
        room = quick_room if self._singles[worker] else math.inf
        return Part(math.inf, room, has_singles=False, is_apart=True)
