"""The next token of one row: its probabilities, or the top tokens that the graph has listed."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from seqserve_server.engine.decoding.logits import (
    Columns,
    Processor,
    TokenLogprobs,
    column_of,
    largest,
)
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT


class RankedTokens(NamedTuple):
    """Tokens in the order of their probability, ``[K]`` each."""

    token_ids: Array
    log_probabilities: Array

    def pairs(self, count: int) -> TokenLogprobs:
        """Lists the first ``count`` of them, suppressed ones left out."""
        parts = (self.token_ids[:count].tolist(), self.log_probabilities[:count].tolist())
        return [pair for pair in zip(*parts, strict=True) if pair[1] > MASKED_LOGIT / 2]


class Distribution:
    """Log-probabilities of all tokens of a row, or of those that its request allows."""

    def __init__(
        self,
        logits: Array,
        output: Sequence[int],
        processors: Sequence[Processor],
        columns: Columns = None,
    ) -> None:
        """Runs processors on logits ``[N]`` of ``columns``, or of the whole vocabulary."""
        for process in processors:
            logits = process(logits, output, columns)
        self.log_probabilities = logits
        """``[N]``"""
        self._columns = columns

    def token(self, column: int) -> int:
        """Returns the token of a column."""
        return int(column if self._columns is None else self._columns[column])

    def log_probability(self, token: int) -> float:
        """Returns the log-probability of a token; minus infinity where it is not allowed."""
        column = column_of(token, self._columns)
        return -math.inf if column is None else float(self.log_probabilities[column])

    def top(self, count: int) -> RankedTokens:
        """Returns the most probable tokens."""
        columns = largest(self.log_probabilities, count)
        tokens = columns if self._columns is None else self._columns[columns]
        return RankedTokens(tokens, self.log_probabilities[columns])

    def pairs(self, count: int) -> TokenLogprobs:
        """Lists the most probable tokens, suppressed ones left out."""
        return self.top(count).pairs(count)
