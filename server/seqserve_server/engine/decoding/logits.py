"""Logits of the next token of a row: processors of them, and the probabilities that they give.

Only rows whose request changes something have processors. Tokens that are suppressed need none: the
graph masks them itself.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.packing import Array
from seqserve_server.engine.step import MASKED_LOGIT

TokenLogprobs = list[tuple[int, float]]
"""Tokens of one step and their log-probabilities, best first."""


def log_softmax(logits: Array) -> Array:
    """Returns the log-probabilities of logits, ``[V]`` → float64 ``[V]``."""
    shifted: Array = logits.astype(np.float64) - logits.max()
    shifted -= np.log(np.exp(shifted).sum())
    return shifted


def largest(values: Array, count: int) -> Array:
    """Finds the indices of the largest of ``values [V]``, largest first; among equals the first."""
    count = min(count, len(values))
    if not count:
        return np.empty(0, np.int64)
    indices = np.argpartition(values, len(values) - count)[len(values) - count :]
    # All that equal the least of them, so that the choice among equals does not depend on chance.
    indices = np.flatnonzero(values >= values[indices].min())
    return indices[np.argsort(-values[indices], kind="stable")][:count]


def normalized(score: float, length: int, penalty: float) -> float:
    """Divides a score by the length, prefix and end included, to the power of the penalty."""
    return float(score / max(length, 1) ** penalty)


Columns: TypeAlias = "Array | None"
"""The token of each column, rising, ``[N]``; None where column and token are the same."""

Processor: TypeAlias = Callable[[Array, Sequence[int], Columns], Array]
"""Takes values ``[N]``, the row's tokens so far and the columns; gives new values ``[N]``."""


def processors_of(options: DecodingOptions) -> tuple[Processor, ...]:
    """Lists the processors of a request, in order; the last gives log-probabilities."""
    if not options.needs_distribution:
        return ()
    processors: list[Processor] = []
    if options.repetition_penalty != 1.0:
        processors.append(partial(penalize_repetition, options.repetition_penalty))
    processors.append(normalize)
    if options.prefix_bias_beta:
        processors.append(partial(prefer_prefix, options.prefix, options.prefix_bias_beta))
    return tuple(processors)


def column_of(token: int, columns: Columns) -> int | None:
    """Finds the column of a token; None where it has none."""
    if columns is None:
        return token
    column = int(columns.searchsorted(token))
    return column if column < len(columns) and columns[column] == token else None


def normalize(logits: Array, output: Sequence[int], columns: Columns) -> Array:
    """Turns logits into log-probabilities, float64."""
    return log_softmax(logits)


def penalize_repetition(
    penalty: float, logits: Array, output: Sequence[int], columns: Columns
) -> Array:
    """Divides positive logits of tokens that the row holds by the penalty, and multiplies others.

    Suppressed tokens stay so. Source: Keskar et al. 2019, "CTRL", section 4.1; for negative logits
    as in CTranslate2.
    """
    of_output = (column_of(token, columns) for token in set(output))
    repeated = np.fromiter((column for column in of_output if column is not None), np.int64)
    repeated = repeated[logits[repeated] > MASKED_LOGIT / 2]
    changed = logits.copy()
    before = logits[repeated]
    changed[repeated] = np.where(before < 0, before * penalty, before / penalty)
    return changed


def prefer_prefix(
    prefix: tuple[int, ...],
    beta: float,
    log_probabilities: Array,
    output: Sequence[int],
    columns: Columns,
) -> Array:
    """Moves a share of the probability to the next prefix token: CTranslate2's biased decoding."""
    length = len(output)
    if length < len(prefix) and tuple(output) == prefix[:length]:
        column = column_of(prefix[length], columns)
        if column is not None:
            log_probabilities += np.log1p(-beta)
            log_probabilities[column] = np.logaddexp(log_probabilities[column], np.log(beta))
    return log_probabilities


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
