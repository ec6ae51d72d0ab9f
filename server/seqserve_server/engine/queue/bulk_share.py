"""Keeps steps short for single calls: tells how many slots the sources of bulk calls may take.

The more rows run, the longer a step takes. While single calls come, the sources of bulk calls and
batches take a quarter of the slots instead of all: a token of a single call then takes a fraction
of the time, and the bulk loses much less than it gave away.
"""

from __future__ import annotations

import math

from seqserve_server.contract.request import Spec

SHARE = 0.25
"""Part of all slots that bulk takes while there are single calls."""
PATIENCE_S = 1.0
"""So long after the end of a single call another one is expected."""


class BulkShare:
    """Counts the slots in use, by bulk and by single calls."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._rows = {is_bulk: 0 for is_bulk in (False, True)}
        self._single_ended_s = -math.inf

    @property
    def rows(self) -> int:
        """Slots in use."""
        return sum(self._rows.values())

    def room(self, now_s: float) -> float:
        """Counts the slots that bulk may still take, as far as they are free."""
        bulk_rows = self._rows[True]
        has_singles = self._rows[False] or now_s < self._single_ended_s + PATIENCE_S
        # Something of it always runs, however many slots that needs.
        return self._slots * SHARE - bulk_rows if has_singles and bulk_rows else math.inf

    def begin(self, spec: Spec) -> None:
        """Takes the slots of a request."""
        self._rows[spec.is_bulk] += spec.rows

    def end(self, spec: Spec, now_s: float) -> None:
        """Frees the slots of a request."""
        self._rows[spec.is_bulk] -= spec.rows
        if not spec.is_bulk:
            self._single_ended_s = now_s
