"""What a step computes for rows that choose among some tokens only, and what they choose.

A step projects all rows onto the union of their candidates. Where these are many it computes all
logits instead; either gives the same bits, and so the same choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from seqserve_server.engine.candidates import Candidates, Layout
from seqserve_server.engine.choice import Choice
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT


class CandidateStep:
    """Buffers for the candidates of a number of slots."""

    def __init__(
        self, slots: int, vocabulary_size: int, allowed_shape: Callable[[int], tuple[int, int]]
    ) -> None:
        """Allocates them; ``allowed_shape`` is that of the runtime."""
        self._allowed_shape = allowed_shape
        groups, size = allowed_shape(vocabulary_size)
        self.tokens = np.zeros((groups, size), np.int64)
        """The union of all candidates, in groups: what a step reads."""
        self.logits = np.zeros((slots * groups, size), np.float32)
        """Their logits for every row: what a step writes."""
        self.groups = 0
        """How many groups the next step computes."""
        self.rows = Candidates(vocabulary_size)
        self._vocabulary_size = vocabulary_size
        self._layout: Layout | None = None
        # Where the logits of the candidates are among those computed, and which are suppressed.
        self._places = np.empty(0, np.int64)
        self._masked: Array | None = None

    @property
    def needs_all_logits(self) -> bool:
        """Whether the next step must compute the logits of all tokens in place of the union's."""
        return self._layout is not None and not self.groups

    def prepare(self) -> bool:
        """Writes the union of all candidates, where it has changed; tells whether it has."""
        layout = self.rows.layout()
        if layout is self._layout:
            return False
        self._layout, self._masked = layout, None
        union = np.empty(0, np.int64) if layout is None else layout.union
        self.groups, _ = self._allowed_shape(len(union))
        # The rest of the last groups holds older tokens: nobody reads their logits.
        self.tokens.reshape(-1)[: len(union)] = union
        if layout is not None:
            stride = self.groups * self.tokens.shape[1] or self._vocabulary_size
            self._places = (layout.rows * stride).repeat(layout.sizes) + layout.columns
        return True

    def forget_masks(self) -> None:
        """Looks for suppressed tokens again in the next step."""
        self._masked = None

    def choose(self, all_logits: Array, suppressed: Mapping[int, Sequence[int]]) -> Choice | None:
        """Chooses for the rows that have candidates, after a step; None where there are none.

        Args:
            all_logits: Of all tokens for every row, one after the other, where the step computed
                them.
            suppressed: Suppressed tokens of each row, rising.
        """
        layout = self._layout
        if layout is None:
            return None
        computed = self.logits if self.groups else all_logits
        logits = computed.reshape(-1).take(self._places)
        if self._masked is None:
            self._masked = layout.places(suppressed)
        logits[self._masked] = MASKED_LOGIT
        return Choice(layout, logits)
