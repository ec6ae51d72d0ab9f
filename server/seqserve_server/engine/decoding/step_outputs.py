"""Optional outputs of a step: the union of the needs of its running rows."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import SlotCache

# Steps list tokens in multiples of this, so that few bindings are made.
_TOP_K_STEP = 2


class StepOutputs(NamedTuple):
    """What one row needs."""

    top_k: int = 0
    logits: bool = False
    """Whether it needs the logits of all tokens: its request changes them, or samples among all."""

    @classmethod
    def of(cls, options: DecodingOptions, *, is_limited: bool = False) -> StepOutputs:
        """Reads what a request needs; where it is limited, every step gives the logits."""
        if options.is_plain:
            return PLAIN
        top_k = options.return_top_tokens
        if options.beam_size > 1:
            top_k = max(top_k, 2 * options.beam_size)
        if options.return_alternatives:
            top_k = max(top_k, options.num_hypotheses)
        if options.sampling and options.sampling.top_k <= MAX_TOP_K:
            top_k = max(top_k, options.sampling.top_k)
        reads_logits = options.needs_distribution or options.samples_all
        return cls(top_k, reads_logits and not is_limited)


PLAIN = StepOutputs()


class RequestedOutputs:
    """Counts what rows need, and sets up the cache's steps accordingly."""

    def __init__(self, cache: SlotCache) -> None:
        self._cache = cache
        self._rows: Counter[StepOutputs] = Counter()

    def add(self, outputs: StepOutputs, rows: int) -> None:
        """Counts rows that need the same."""
        self._rows[outputs] += rows
        if self._rows[outputs] == rows:
            self._set_up()

    def remove(self, outputs: StepOutputs) -> None:
        """Takes away one row."""
        self._rows[outputs] -= 1
        if not self._rows[outputs]:
            del self._rows[outputs]
            self._set_up()

    def _set_up(self) -> None:
        top_k = max((outputs.top_k for outputs in self._rows), default=0)
        self._cache.set_outputs(
            top_k=-(-top_k // _TOP_K_STEP) * _TOP_K_STEP,
            logits=any(outputs.logits for outputs in self._rows),
        )
