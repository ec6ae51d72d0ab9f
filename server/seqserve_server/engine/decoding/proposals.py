"""The possible next tokens of a row whose request needs more than the graph's choice.

Forced prefixes, alternatives and lists of top tokens are the same for every kind of search.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.decoding.logits import Distribution, RankedTokens
from seqserve_server.engine.decoding.rows import Rows


class Proposal(NamedTuple):
    """The possible next tokens of one row."""

    choices: RankedTokens | Distribution | None = None
    """Tokens to choose from; None to take the graph's own choice."""
    next_token: tuple[int, float] | None = None
    """The next token, if there is no choice, and its log-probability: NaN if it is forced."""
    top_tokens: Sequence[tuple[int, float]] = ()
    """Top tokens of the step for the answer; empty unless requested."""
    is_improbable: bool = False
    """Whether the row is an alternative that is too improbable."""


def proposal_of(rows: Rows, row: int) -> Proposal:
    """Proposes the next token of a row, by the outputs of the last step."""
    state, length = rows.states[row], int(rows.cache.lengths[row])
    options = state.options
    forced = state.constraints.forced(length - 1)
    if forced is not None:
        return Proposal(next_token=(forced, math.nan))
    is_branching = options.is_branching_token(length)
    if not (state.processors or options.return_top_tokens or is_branching):
        return Proposal()
    choices = _choices(rows, row, length)
    top_tokens = choices.pairs(options.return_top_tokens)
    if not is_branching:
        return Proposal(choices, None, top_tokens)
    chosen = alternative(choices, state.index, options)
    return Proposal(choices, chosen or choices.pairs(1)[0], top_tokens, chosen is None)


def _choices(rows: Rows, row: int, length: int) -> RankedTokens | Distribution:
    state, cache = rows.states[row], rows.cache
    if not state.processors:
        tokens, log_probabilities = cache.top_tokens([row])
        return RankedTokens(tokens[0], log_probabilities[0])
    columns, logits = cache.candidates(row) or (None, cache.logits(row))
    return Distribution(logits, rows.output(row, length - 1), state.processors, columns)


def alternative(
    choices: RankedTokens | Distribution, index: int, options: DecodingOptions
) -> tuple[int, float] | None:
    """Returns the first token of the alternative of this index; None if it is too improbable."""
    pairs = choices.pairs(index + 1)
    if index == 0:
        return pairs[0]
    if len(pairs) <= index:
        return None
    is_probable = math.exp(pairs[index][1]) >= options.min_alternative_expansion_prob
    return pairs[index] if is_probable else None
