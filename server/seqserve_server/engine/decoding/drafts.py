"""Drafts: guesses of the target. Their correct parts cost greedy search one pass instead of steps.

Source: Sun et al. 2021, "Instantaneous Grammatical Error Correction with Shallow Aggressive
Decoding".
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqserve_server.contract.events import Finished
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoder_state import MIN_LENGTH
from seqserve_server.engine.decoding.row_decoder import RowDecoder
from seqserve_server.engine.decoding.rows import Rows, RowState
from seqserve_server.engine.packing import Array
from seqserve_server.engine.request import Request
from seqserve_server.engine.step import DraftReader

MAX_TOKENS = 32
"""Tokens of a pass, which then takes less than twice as long as to encode as many."""


def draft_pass(
    reader: DraftReader, cache: SlotCache, row: int, tokens: Sequence[int]
) -> tuple[list[int], list[float]] | None:
    """Reads 2 to :data:`MAX_TOKENS` tokens in a row: the newest, and what may come next.

    The row gets their keys and values, but is no longer. Returns the best next token after each of
    them, and its log-probability, or zeros. None while drafts are not read.
    """
    outputs = reader.read(_inputs(cache, row, tokens))
    if outputs is None:
        return None
    best, log_probabilities, *entries = outputs
    begin = int(cache.lengths[row])
    for name, new in zip(_named(cache, "self_"), entries, strict=True):
        cache.inputs[name][row, :, begin : begin + new.shape[2]] = new[0]
    return best[:, 0].tolist(), log_probabilities.tolist() or [0.0] * len(tokens)


def _inputs(cache: SlotCache, row: int, tokens: Sequence[int]) -> dict[str, Array]:
    rows, length = len(tokens), int(cache.lengths[row])
    source_length = max(int(cache.source_lengths[row]), MIN_LENGTH)
    only, has_scores = slice(row, row + 1), np.array(cache.returned_logprobs)
    inputs = cache.inputs
    return {
        "tokens": np.array(tokens)[:, None],
        "lengths": np.arange(length, length + rows, dtype=np.int32),
        "max_length": np.array([length + rows], np.int32),
        "source_last_index": inputs["source_last_index"][only].repeat(rows),
        "max_source_length": np.array([source_length], np.int32),
        "has_options": has_scores,
        "only_scores": has_scores,
        "return_logprobs": has_scores,
        "bias_tokens": inputs["bias_tokens"][:0, None],
        "bias_values": inputs["bias_values"][:0, None],
        "top_k": np.empty(0, np.int64),
        "num_logits": np.empty(0, np.int64),
        "allowed_tokens": inputs["allowed_tokens"][:0],
        "projected_rows": np.arange(rows),
        **{name: inputs[name][only, :, :length] for name in _named(cache, "self_")},
        **{name: inputs[name][only, :, :source_length] for name in _named(cache, "cross_")},
        **{name: inputs[name][only] for name in _named(cache, "last_")},
    }


def _named(cache: SlotCache, prefix: str) -> list[str]:
    return [name for name in cache.inputs if name.startswith(prefix)]


# A pass over fewer tokens takes longer than as many steps.
_MIN_TOKENS = 5
# Tokens of the first pass, and of the first one after a mismatch.
_FIRST_TOKENS = 8
# A pass after which no token was wrong is followed by one of so many times as many.
_GROWTH = 4
# Beside more rows a token costs less in a step of all of them than in a pass.
_MAX_ROWS = 2


class Draft:
    """A draft, and the position of the output in it."""

    def __init__(self, tokens: tuple[int, ...]) -> None:
        self._tokens = tokens
        # The place of the token that comes next; of the first one that may, after a mismatch.
        self._next = 0
        self._is_followed = True
        self._newest: int | None = None
        self._pass_tokens = _FIRST_TOKENS

    def append(self, token: int) -> None:
        """Takes the next token of the output; after a mismatch, looks for the last two."""
        before, self._newest = self._newest, token
        if self._is_followed and self._tokens[self._next : self._next + 1] == (token,):
            self._next += 1
            return
        self._is_followed = False
        for place in range(max(self._next, 1), len(self._tokens)):
            if self._tokens[place] == token and self._tokens[place - 1] == before:
                self._next, self._is_followed = place + 1, True
                return

    def following(self, left: int) -> list[int]:
        """Returns the tokens to verify in the next pass; none while the output is elsewhere.

        ``left`` is how many tokens the row may have yet. The last one always comes by a step.
        """
        count = min(left - 1, self._pass_tokens) - 1
        is_worth_it = self._is_followed and count + 1 >= _MIN_TOKENS
        tokens = [*self._tokens[self._next : self._next + count]] if is_worth_it else []
        return tokens if len(tokens) + 1 >= _MIN_TOKENS else []

    def resize(self, *, was_right: bool) -> None:
        """Lets the next pass verify more tokens if all of the last one were right."""
        tokens = self._pass_tokens * _GROWTH if was_right else _FIRST_TOKENS
        self._pass_tokens = min(tokens, MAX_TOKENS)


class Verified(NamedTuple):
    """The result of a pass over a part of a draft."""

    row: int
    request: Request
    drafted: int
    """Tokens of the draft that were read."""
    accepted: int
    """How many of them greedy search writes."""
    token_ids: list[int]
    """New tokens of the row: those, and the one that comes after them unless they end it."""
    finished: list[tuple[Request, Finished]]
    """The request, where it is answered: its row is free then."""


class Drafts:
    """The drafts of running rows."""

    def __init__(self, rows: Rows, row_decoder: RowDecoder, reader: DraftReader | None) -> None:
        self._rows, self._row_decoder, self._reader = rows, row_decoder, reader
        self.of_rows: dict[RowState, Draft] = {}
        """The draft of each running row that has one."""

    def put(self, row: int, tokens: tuple[int, ...]) -> None:
        """Sets the draft of a new row, if drafts can be read."""
        if self._reader is not None:
            self.of_rows[self._rows.states[row]] = Draft(tokens)

    def take_newest_tokens(self) -> None:
        """Takes the newest token of each row after a step."""
        for state, draft in self.of_rows.items():
            draft.append(int(self._rows.cache.tokens[state.row, 0]))

    def verify(self) -> Verified | None:
        """Runs a pass for the first row that follows its draft, unless steps are faster."""
        if len(self._rows.states) > _MAX_ROWS:
            return None
        for state, draft in self.of_rows.items():
            length = int(self._rows.cache.lengths[state.row])
            tokens = draft.following(int(self._rows.max_lengths[state.row]) - length)
            if tokens and state.constraints.forced(length) is None:
                return self._verified(state, draft, tokens)
        return None

    def _verified(self, state: RowState, draft: Draft, tokens: list[int]) -> Verified | None:
        row = state.row
        cache = self._rows.cache
        assert self._reader is not None
        following = draft_pass(self._reader, cache, row, [int(cache.tokens[row, 0]), *tokens])
        if following is None:
            return None
        best, log_probabilities = following
        right = next((at for at, token in enumerate(tokens) if token != best[at]), len(tokens))
        count, finished = self._row_decoder.extend(
            row, best[: right + 1], log_probabilities[: right + 1]
        )
        for token in best[:count]:
            draft.append(token)
        draft.resize(was_right=right == len(tokens))
        request = state.pool.request
        return Verified(row, request, len(tokens), min(count, right), best[:count], finished)
