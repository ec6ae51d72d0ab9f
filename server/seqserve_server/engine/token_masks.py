"""The tokens that rows must not generate, as the lists that a decoder step masks logits by."""

from collections.abc import Sequence

import numpy as np

from seqserve_server.contract.limits import MAX_END_TOKENS, MAX_SUPPRESSED
from seqserve_server.engine.step import MASKED_LOGIT

# Tokens that a request's lists can suppress at once; its n-grams add one for each of its tokens.
_MAX_LISTED = MAX_SUPPRESSED + 1 + MAX_END_TOKENS


class TokenMasks:
    """Suppressed tokens of each row, and the buffers that a step reads them from.

    They hold ``width`` tokens of each row; what is left holds any token, whose logit stays.
    """

    def __init__(self, slots: int, max_length: int, filler: int) -> None:
        self._slots = slots
        self._filler = filler
        self._max_width = _MAX_LISTED + max_length
        self.by_row: dict[int, Sequence[int]] = {}
        """Suppressed tokens of the rows that have some."""
        self.width = 1
        """Tokens that a step reads for each row."""
        self.tokens = np.full(slots * self._max_width, filler, np.int64)
        self.values = np.zeros(slots * self._max_width, np.float32)
        """Values to add to the logits of ``tokens``."""
        # How many leading rows are written; 0 if some have changed.
        self._rows_written = slots

    def put(self, row: int, tokens: Sequence[int]) -> bool:
        """Suppresses tokens of a row, or none; tells whether others were suppressed before."""
        before = self.by_row.pop(row, ())
        if tokens:
            self.by_row[row] = tokens
        is_new = bool(before or tokens) and before != tokens
        if is_new:
            self._rows_written = 0
        return is_new

    def write(self, rows: int) -> bool:
        """Writes the leading rows, all of one width; tells whether anything had changed."""
        if rows <= self._rows_written:
            return False
        longest = max((len(tokens) for tokens in self.by_row.values()), default=1)
        # Few widths, so that few bindings are made.
        self.width = width = min(1 << (longest - 1).bit_length(), self._max_width)
        if not self.by_row:
            # Once for all rows, until there is a mask again.
            rows = self._slots
        self.tokens[: rows * width] = self._filler
        self.values[: rows * width] = 0.0
        for row, tokens in self.by_row.items():
            if row < rows:
                begin = row * width
                self.tokens[begin : begin + len(tokens)] = tokens
                self.values[begin : begin + len(tokens)] = MASKED_LOGIT
        self._rows_written = rows
        return True
