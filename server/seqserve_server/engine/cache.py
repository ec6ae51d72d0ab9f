"""The arrays that a decoder step reads and writes: tokens, lengths and decoder state of every row.

Everything is allocated once, from the model's limits. Running rows are always the leading ones, 0
to n - 1, so that a step reads one contiguous block: the last row replaces one that leaves. A step's
cost grows with the tokens stored, not with the capacity, so every row has room for the longest
source and target.
"""

from collections.abc import Sequence

import numpy as np

from seqserve_server.contract.limits import MAX_TOP_K
from seqserve_server.engine.candidate_step import CandidateStep
from seqserve_server.engine.candidates import Choice
from seqserve_server.engine.decoder_state import MIN_LENGTH
from seqserve_server.engine.packing import Array, CrossKV
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.step import StepSizes
from seqserve_server.engine.token_masks import TokenMasks


class SlotCache:
    """Buffers for a number of slots, bound to one decoder step."""

    def __init__(self, runtime: Runtime, slots: int) -> None:
        manifest = runtime.manifest
        self._bos, self._eos = manifest.tokens.bos, manifest.tokens.eos
        self.slots = slots
        self.vocabulary_size = manifest.architecture.vocabulary_size
        # Before what is written at once: it is the largest, and fails before it takes memory.
        self._target, self._cross = runtime.decoder_state(slots)
        self.tokens = np.zeros((slots, 1), np.int64)
        """Newest token of each row: what the next step reads, ``[B, 1]``."""
        self.log_probabilities = np.zeros(slots, np.float32)
        """Log-probabilities of these tokens, ``[B]``, if the last step computed them."""
        self.lengths = np.zeros(slots, np.int32)
        """Tokens that each row has read, and so has generated, ``[B]``."""
        self.source_lengths = np.zeros(slots, np.int32)
        """Tokens of each row's source, ``[B]``."""
        self._source_last_index = np.zeros(slots, np.int32)
        # How many rows the two maxima below belong to; 0 where they must be found again.
        self._rows_measured = 0
        self._running_lengths = self.lengths[:0]
        self._num_tokens = 0
        self._max_length = np.full(1, MIN_LENGTH, np.int32)
        self._max_source_length = np.full(1, MIN_LENGTH, np.int32)
        flags = (np.array(True) for _ in range(3))
        self._has_options, self._only_scores, self._return_logprobs = flags
        self.returned_logprobs = self._graph_sums = True
        self._masks = TokenMasks(slots, manifest.limits.max_target_length, self._eos)
        self.top_k = 0
        """Top tokens that steps list for each row."""
        self._top_tokens = np.zeros(slots * MAX_TOP_K, np.int64)
        self._top_log_probabilities = np.zeros(slots * MAX_TOP_K, np.float32)
        self.num_logits = 0
        # One more than a step writes, for candidates that a row does not have.
        self._logits = np.zeros(slots * self.vocabulary_size + 1, np.float32)
        self._logits[-1] = -np.inf
        self._sizes: StepSizes | None = None
        self._candidate_step = CandidateStep(
            slots,
            self.vocabulary_size,
            runtime.candidate_tables,
            runtime.candidate_weights,
            runtime.allowed_shape,
        )
        self._choice: Choice | None = None
        self.inputs = self._inputs()
        """What a step reads, by the names of the graph's inputs."""
        self._step = runtime.step(self.inputs, self._outputs())

    def _inputs(self) -> dict[str, Array]:
        return {
            "tokens": self.tokens,
            "lengths": self.lengths,
            "max_length": self._max_length,
            "source_last_index": self._source_last_index,
            "max_source_length": self._max_source_length,
            "has_options": self._has_options,
            "only_scores": self._only_scores,
            "bias_tokens": self._masks.tokens,
            "bias_values": self._masks.values,
            "return_logprobs": self._return_logprobs,
            "top_k": np.zeros(MAX_TOP_K, np.int64),
            "num_logits": np.zeros(self.vocabulary_size, np.int64),
            **self._candidate_step.inputs,
            "projected_rows": np.arange(self.slots),
            **self._target.arrays,
            **self._cross.arrays,
            **self._cross.last,
        }

    def _outputs(self) -> dict[str, Array]:
        written = {**self._target.arrays, **self._cross.arrays}
        return {
            "next_tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
            "top_tokens": self._top_tokens,
            "top_log_probabilities": self._top_log_probabilities,
            "logits": self._logits,
            "allowed_logits": self._candidate_step.logits,
            **{f"new_{name}": array for name, array in written.items()},
        }

    @property
    def bytes(self) -> int:
        """Bytes of what the decoder's layers keep of all rows."""
        parts = (self._target.arrays, self._cross.arrays, self._cross.last)
        return sum(array.nbytes for part in parts for array in part.values())

    def join(
        self,
        row: int | list[int],
        cross_kv: CrossKV,
        index: int,
        start_token: int | None = None,
    ) -> None:
        """Copies a newly encoded source into a free row, or several, with their first token."""
        length = cross_kv.length(index)
        self._cross.join(row, cross_kv, index)
        self._target.start(row)
        self.tokens[row] = self._bos if start_token is None else start_token
        self.lengths[row] = 0
        self.source_lengths[row] = length
        self._source_last_index[row] = length - 1
        self._rows_measured = 0

    def move(self, source: int, target: int) -> None:
        """Copies one row over another, no further than it is filled."""
        self._target.copy(source, target, 0, int(self.lengths[source]))
        self._cross.copy(source, target, int(self.source_lengths[source]))
        for array in (self.tokens, self.lengths, self.source_lengths, self._source_last_index):
            array[target] = array[source]
        if self._masks.by_row or self._candidate_step.candidates:
            self.suppress(target, self.suppressed(source))
            self.limit(target, self._candidate_step.candidates.of(source))
            self.release(source)
        self._rows_measured = 0

    def branch(self, sources: Array, targets: Array, shared: Array) -> None:
        """Copies rows over others of the same source; their first ``shared`` tokens are equal."""
        self._target.branch(sources, targets, shared, self.lengths[sources])
        self.lengths[targets] = self.lengths[sources]
        self._rows_measured = 0

    def append(self, row: int, token: int) -> int:
        """Appends the next token to a row without a step; returns its length."""
        self.tokens[row] = token
        self.lengths[row] += 1
        self._rows_measured = 0
        return int(self.lengths[row])

    def empty(self, rows: list[int]) -> None:
        """Lets rows without a request begin anew with each step, so that they stay short."""
        if rows:
            self.lengths[rows] = 0
            self._rows_measured = 0

    def clear(self) -> None:
        """Empties all rows, no further than they are filled."""
        self._target.clear(int(self.lengths.max()))
        self._cross.clear(int(self.source_lengths.max()))
        for array in (self.tokens, self.log_probabilities, self.lengths, self.source_lengths):
            array[:] = 0
        self._source_last_index[:] = 0
        self._rows_measured = 0

    def suppress(self, row: int, tokens: Sequence[int]) -> None:
        """Masks some tokens of a row in all steps from now on; none lifts the mask."""
        if self._masks.put(row, tokens):
            self._candidate_step.forget_masks()

    def limit(self, row: int, candidates: Array | None) -> None:
        """Lets a row choose among token ids ``[N]``, rising, from now on; None for all.

        Log-probabilities are then shares of what these tokens have together. Rows that share
        candidates pass the same object.
        """
        self._candidate_step.candidates.put(row, candidates)

    def release(self, row: int) -> None:
        """Lifts the mask and the limit of a row."""
        if row in self._masks.by_row:
            self.suppress(row, ())
        if self._candidate_step.candidates:
            self.limit(row, None)

    def suppressed(self, row: int) -> Sequence[int]:
        """Lists the masked tokens of a row."""
        return self._masks.by_row.get(row, ())

    def set_outputs(self, *, top_k: int, logits: bool) -> None:
        """Sets what the next steps compute for every row: some top tokens, and all logits."""
        self.top_k = min(top_k, MAX_TOP_K, self.vocabulary_size)
        self.num_logits = self.vocabulary_size if logits else 0
        self._sizes = None

    def top_tokens(self, rows: Sequence[int] | Array) -> tuple[Array, Array]:
        """Returns the top tokens of rows ``[..]`` and their log-probabilities, ``[.., K]`` each."""
        tokens, log_probabilities = self._all_top_tokens()
        return tokens.take(rows, axis=0), log_probabilities.take(rows, axis=0)

    def logits(self, rows: int | Array) -> Array:
        """Returns the logits of all tokens for rows ``[..]`` in the last step, ``[.., V]``."""
        return self._logits[:-1].reshape(self.slots, self.vocabulary_size)[rows]

    def candidates(self, row: int) -> tuple[Array, Array] | None:
        """Returns a row's candidates, if any, and their logits in the last step, ``[N]``."""
        if self._choice is None or self._candidate_step.candidates.of(row) is None:
            return None
        return self._choice.candidates(row)

    def advance(self, rows: int, *, return_logprobs: bool = True) -> None:
        """Runs one step: each row reads its newest token, and its next token takes that place."""
        if rows != self._rows_measured:
            self._num_tokens = int(self.lengths[:rows].max())
            self._max_source_length[0] = max(int(self.source_lengths[:rows].max()), MIN_LENGTH)
            self._running_lengths = self.lengths[:rows]
            self._rows_measured = rows
            self._sizes = None
        self._max_length[0] = max(self._num_tokens + 1, MIN_LENGTH)
        if self._candidate_step.prepare():
            self._sizes = None
        if self._masks.write(rows):
            self._sizes = None
        self.returned_logprobs = return_logprobs
        # The graph need not sum over all tokens for rows that do not choose among all.
        sums = return_logprobs and len(self._candidate_step.candidates) < rows
        if sums is not self._graph_sums:
            self._graph_sums, self._sizes = sums, None
        if self._sizes is None:
            self._sizes = self._step_sizes(rows)
            self._has_options[...] = not self._sizes.is_plain
            self._only_scores[...] = self._sizes.only_scores
            self._return_logprobs[...] = self._sizes.logprobs
        self._cross.flush()
        self._step.run(rows, self._sizes)
        self._choice = self._candidate_step.choose(self._logits, self._masks.by_row)
        if self._choice is not None:
            self._apply(self._choice)
        self._running_lengths += 1
        self._num_tokens += 1

    def _step_sizes(self, rows: int) -> StepSizes:
        step, logprobs = self._candidate_step, self._graph_sums
        allowed = step.groups, step.rows_of_group
        if step.groups and len(step.candidates) == rows:
            return StepSizes(0, 0, 0, *allowed, projects=False, logprobs=logprobs)
        logits = self.vocabulary_size if step.needs_all_logits else self.num_logits
        biases = self._masks.width if self._masks.by_row else 0
        return StepSizes(biases, self.top_k, logits, *allowed, logprobs=logprobs)

    def _apply(self, choice: Choice) -> None:
        rows = choice.rows
        self.tokens[rows, 0] = choice.tokens
        if not self.returned_logprobs:
            return
        log_totals = choice.log_totals()
        self.log_probabilities[rows] = 0.0 - log_totals
        if self.top_k:
            tokens, log_probabilities = self._all_top_tokens()
            top = choice.top(self.top_k, log_totals, self._eos)
            tokens[rows], log_probabilities[rows] = top

    def _all_top_tokens(self) -> tuple[Array, Array]:
        end, shape = self.slots * self.top_k, (self.slots, self.top_k)
        return (
            self._top_tokens[:end].reshape(shape),
            self._top_log_probabilities[:end].reshape(shape),
        )
