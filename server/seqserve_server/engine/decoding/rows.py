"""The decoding state of every running row: rows join, move, branch and leave here, nowhere else."""

from collections.abc import Sequence

import numpy as np

from seqserve_server.contract.events import TopTokens
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.hypotheses import HypothesisPool, PartialHypothesis
from seqserve_server.engine.decoding.logits import Processor, processors_of
from seqserve_server.engine.decoding.sampling import SamplingParams
from seqserve_server.engine.decoding.step_outputs import StepOutputs
from seqserve_server.engine.packing import Array

NEVER = np.iinfo(np.int32).max
"""More tokens than a row may have."""


class RowState:
    """The request of one row, and its state outside of arrays."""

    __slots__ = (
        *("beams", "constraints", "index", "is_improbable", "needs_proposals"),
        *("options", "outputs", "pool", "processors"),
    )

    def __init__(self, pool: HypothesisPool, index: int, beams: list[int]) -> None:
        """Takes the index of the row's search and its rows, best first, which share that list."""
        self.pool = pool
        self.index = index
        self.beams = beams
        self.options = pool.options
        self.constraints = pool.constraints
        self.needs_proposals = pool.options.needs_proposals
        self.processors: tuple[Processor, ...] = (
            processors_of(pool.options) if self.needs_proposals else ()
        )
        self.outputs: StepOutputs | None = None
        """Outputs of each step that it needs, once they have been requested."""
        self.is_improbable = False
        """Whether it is an alternative that is too improbable."""

    @property
    def row(self) -> int:
        """The row of a search that has no other."""
        [row] = self.beams
        return row


class Rows:
    """Arrays over all slots, and a :class:`RowState` for each row in use."""

    def __init__(self, cache: SlotCache, max_tokens: int) -> None:
        slots = cache.slots
        self.cache = cache
        self.states: dict[int, RowState] = {}
        self.tokens = np.zeros((slots, max_tokens), np.int32)
        """Generated tokens, ``[B, T]``."""
        self.log_probabilities = np.zeros((slots, max_tokens))
        """Log-probability of each token, ``[B, T]``; NaN if it was forced."""
        self.scores = np.zeros(slots)
        """Sums of the log-probabilities, forced tokens left out, ``[B]``."""
        self.max_lengths = np.zeros(slots, np.int32)
        """Most tokens of each row, ``[B]``."""
        self.forced_ends = np.full(slots, -1, np.int32)
        """Token that each row ends with at its maximum length; -1 where any may come."""
        self.num_forced_ends = 0
        self.has_no_beam = np.zeros(slots, np.bool_)
        """Rows that choose independently: greedy search and sampling."""
        self.num_without_beam = 0
        self.inspected_from = np.full(slots, NEVER, np.int32)
        """Tokens that a row without a beam has when it is first looked at by itself after a
        step."""
        self.is_special = np.zeros(slots, np.bool_)
        """Rows that sample, or are looked at by themselves."""
        self.num_special = 0
        self.samples = np.zeros(slots, np.bool_)
        """Rows that sample among the top tokens of the graph."""
        self.samples_all = np.zeros(slots, np.bool_)
        """Rows that sample among all their tokens."""
        self.sampling = SamplingParams.empty(slots)
        self.random = np.zeros((slots, max_tokens))
        """Random numbers in [0, 1), one for each token of a row that samples."""
        self._arrays = (
            self.tokens,
            self.log_probabilities,
            self.scores,
            self.max_lengths,
            self.forced_ends,
            self.has_no_beam,
            self.inspected_from,
            self.is_special,
            self.samples,
            self.samples_all,
            self.random,
            *self.sampling,
        )
        self._top_tokens: dict[int, list[TopTokens]] = {}
        # Where the tokens of each row begin in the flat array, less one.
        self._before = np.arange(slots) * max_tokens - 1
        self._flat_tokens = self.tokens.reshape(-1)

    def join(self, rows: Sequence[int], pool: HypothesisPool) -> None:
        """Starts the rows of a request, each empty; the beams of one search lie side by side."""
        options, size = pool.options, pool.options.beam_size
        searches = [list(rows[begin : begin + size]) for begin in range(0, len(rows), size)]
        for index, row in enumerate(rows):
            self.states[row] = RowState(pool, index // size, searches[index // size])
        is_inspected = options.is_inspected or options.suppression_depends_on_output
        # Until its shortest length the mask of another one stays as it is.
        inspected_from = 0 if is_inspected else options.min_decoding_length or NEVER
        for row in rows:
            self.scores[row] = 0.0
            self.max_lengths[row] = options.max_decoding_length
            if options.force_end_token:
                self.forced_ends[row] = pool.constraints.forced_end
                self.num_forced_ends += 1
            if size == 1:
                self.has_no_beam[row] = True
                self.num_without_beam += 1
                self.inspected_from[row] = inspected_from
            if inspected_from != NEVER or options.sampling:
                self.is_special[row] = True
                self.num_special += 1
            if options.sampling:
                self._start_sampling(row)
            if options.may_suppress:
                self.suppress(row, [])

    def _start_sampling(self, row: int) -> None:
        state = self.states[row]
        options = state.options
        assert options.sampling is not None
        # Each hypothesis has its own generator, so that no other row changes what it draws.
        generator = np.random.default_rng([options.sampling.seed, state.index])
        forced = 0 if options.prefix_bias_beta else len(options.prefix)
        free = options.max_decoding_length - forced
        self.random[row, forced:][:free] = generator.random(free)
        self.sampling.put(row, options.sampling)
        self.samples_all[row] = options.samples_all
        self.samples[row] = not (options.needs_distribution or options.samples_all)

    def move(self, source: int, target: int) -> None:
        """Moves a row into the slot of one that has left."""
        for array in self._arrays:
            array[target] = array[source]
        self.states[target] = state = self.states.pop(source)
        if source in self._top_tokens:
            self._top_tokens[target] = self._top_tokens.pop(source)
        state.beams[state.beams.index(source)] = target
        self._clear_flags(source)

    def leave(self, row: int) -> RowState | None:
        """Forgets a row, and ends its beam search; gives its state, None where no row was there."""
        self.cache.release(row)
        self._top_tokens.pop(row, None)
        self.num_without_beam -= int(self.has_no_beam[row])
        self.num_forced_ends -= int(self.forced_ends[row] >= 0)
        self.num_special -= int(self.is_special[row])
        self._clear_flags(row)
        state = self.states.pop(row, None)
        if state is not None:
            state.beams.clear()
        return state

    def _clear_flags(self, row: int) -> None:
        self.has_no_beam[row] = False
        self.inspected_from[row] = NEVER
        self.is_special[row] = self.samples[row] = self.samples_all[row] = False
        self.forced_ends[row] = -1

    def branch(self, sources: Array, targets: Array, length: int) -> None:
        """Copies rows of a search, with at most ``length`` tokens, over others of it."""
        # What they have read alike: the begin token, then outputs.
        differ = np.ones((len(sources), length + 1), np.bool_)
        np.not_equal(self.tokens[sources, :length], self.tokens[targets, :length], differ[:, :-1])
        self.cache.branch(sources, targets, differ.argmax(axis=1) + 1)
        for array in (self.tokens, self.log_probabilities):
            array[targets, :length] = array[sources, :length]
        if self._top_tokens:
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                if source in self._top_tokens:
                    self._top_tokens[target] = self._top_tokens[source].copy()

    def append(
        self, rows: Array, lengths: Array | int, tokens: Array, log_probabilities: Array
    ) -> None:
        """Appends one token to each of some rows, whatever the shape of the arrays."""
        self.tokens[rows, lengths - 1] = tokens
        self.log_probabilities[rows, lengths - 1] = log_probabilities

    def append_best(self, count: int, lengths: Array, tokens: Array) -> None:
        """Appends one token to each of the leading rows, if no request needs its probability."""
        self._flat_tokens[self._before[:count] + lengths] = tokens

    def append_top(self, row: int, top_tokens: TopTokens) -> None:
        """Keeps the top tokens of the step that gave a row its newest token."""
        self._top_tokens.setdefault(row, []).append(top_tokens)

    def output(self, row: int, length: int) -> list[int]:
        """Returns the first tokens of a row."""
        return self.tokens[row, :length].tolist()  # type: ignore[no-any-return]

    def hypothesis(self, row: int, length: int) -> PartialHypothesis:
        """Returns a row's hypothesis: its first tokens and its score as it is now."""
        return PartialHypothesis(
            self.output(row, length),
            self.log_probabilities[row, :length].tolist(),
            float(self.scores[row]),
            self._top_tokens.get(row, []),
        )

    def suppress(self, row: int, output: list[int]) -> None:
        """Masks the tokens that a row must not generate after its output."""
        self.cache.suppress(row, self.states[row].constraints.suppressed(output))
