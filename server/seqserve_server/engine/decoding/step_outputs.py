"""What a step computes beside the next token: the union of what the running rows need."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.packing import Array

# Steps list tokens in multiples of this, so that few bindings are made.
_TOP_K_STEP = 2

# Gathering more than this part of the output weight costs more than all of it, which is packed.
_MAX_GATHERED = 1 / 4


class StepOutputs(NamedTuple):
    """What one row needs."""

    top_k: int = 0
    """Top tokens."""
    logits: bool = False
    """Whether it needs the logits of all tokens, because its request changes them."""
    allowed_tokens: tuple[int, ...] = ()
    """The only tokens that it may generate; all where empty."""

    @classmethod
    def of(cls, options: DecodingOptions) -> StepOutputs:
        """Reads what a request needs from its options."""
        if options.is_plain:
            return PLAIN
        top_k = options.return_top_tokens
        if options.beam_size > 1:
            top_k = max(top_k, 2 * options.beam_size)
        if options.return_alternatives:
            top_k = max(top_k, options.num_hypotheses)
        if options.sampling and options.sampling.top_k <= MAX_TOP_K:
            top_k = max(top_k, options.sampling.top_k)
        logits = options.needs_distribution and not options.vocabulary
        return cls(top_k, logits, options.vocabulary)


PLAIN = StepOutputs()
"""The graph's own choice is enough."""


class RequestedOutputs:
    """Counts what rows need, and sets up the cache's steps accordingly."""

    def __init__(self, cache: SlotCache) -> None:
        """Starts with no row."""
        self._cache = cache
        self._rows: Counter[StepOutputs] = Counter()
        # Each list of allowed tokens as an array, with the columns of the tokens in the output.
        self._columns: dict[tuple[int, ...], tuple[Array, Array]] = {}
        self._gathered: Array = np.empty(0, np.int64)
        self._returns_all = False

    @property
    def is_empty(self) -> bool:
        """Whether no row needs anything."""
        return not self._rows

    def add(self, outputs: StepOutputs, rows: int) -> None:
        """Counts rows that need the same."""
        self._rows[outputs] += rows
        if self._rows[outputs] == rows:
            self._request()

    def remove(self, outputs: StepOutputs) -> None:
        """Takes away one row."""
        self._rows[outputs] -= 1
        if not self._rows[outputs]:
            del self._rows[outputs]
            self._request()

    def allowed_logits(self, row: int, allowed: tuple[int, ...]) -> tuple[Array, Array]:
        """Gives a row's allowed tokens and their logits in the last step, ``[N]`` each."""
        tokens, columns = self._columns[allowed]
        cache = self._cache
        logits = (cache.logits(row) if self._returns_all else cache.allowed_logits(row))[columns]
        if suppressed := cache.suppressed(row):
            logits[np.isin(tokens, suppressed)] = MASKED_LOGIT
        return tokens, logits

    def _request(self) -> None:
        allowed = {outputs.allowed_tokens for outputs in self._rows} - {()}
        if allowed != self._columns.keys():
            self._gather(allowed)
        top_k = max((outputs.top_k for outputs in self._rows), default=0)
        logits = self._returns_all or any(outputs.logits for outputs in self._rows)
        is_any_free = any(not outputs.allowed_tokens for outputs in self._rows)
        self._cache.request(
            top_k=-(-top_k // _TOP_K_STEP) * _TOP_K_STEP,
            logits=logits,
            allowed=self._gathered,
            projects=is_any_free or not allowed or self._returns_all,
        )

    def _gather(self, allowed: set[tuple[int, ...]]) -> None:
        """Decides which columns a step computes for rows that allow only some tokens."""
        union = np.unique(np.concatenate([*allowed])) if allowed else np.empty(0, np.int64)
        self._returns_all = len(union) > _MAX_GATHERED * self._cache.vocabulary_size
        arrays = {tokens: np.array(tokens) for tokens in allowed}
        self._columns = {
            tokens: (array, array if self._returns_all else union.searchsorted(array))
            for tokens, array in arrays.items()
        }
        self._gathered = union[:0] if self._returns_all else union
