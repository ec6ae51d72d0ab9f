"""The arrays of running rows: words, lengths, and the keys and values of every layer.

All is allocated once, from the limits. Running rows are always the leading ones, 0 to n - 1, so
that a step reads one contiguous block: a row that leaves is replaced by the last one. What a cache
could hold costs nothing in a step, only what a row does hold, so every row has room for the
longest source and target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqserve_server.contract.limits import MAX_END_TOKENS, MAX_SUPPRESSED, MAX_TOP_K
from seqserve_server.contract.manifest import Manifest
from seqserve_server.engine.packing import Array, CrossKV
from seqserve_server.engine.runtime import Runtime, Sizes

# The attention operator takes a longest length of 1 for the start of a prompt.
_LEAST_LONGEST = 2

MASKED_LOGIT = np.float32(-1e30)
"""Logit of a suppressed token: below any other, and finite, so that sums with it are numbers."""

# What a request may list to be kept from it; as many words as its target is long come to them.
_MOST_LISTED = MAX_SUPPRESSED + 1 + MAX_END_TOKENS


class SlotCache:
    """Buffers for a number of slots, bound to one decoder step."""

    def __init__(self, runtime: Runtime, slots: int) -> None:
        """Allocates everything; the pages are touched only when they are used."""
        manifest = runtime.manifest
        self._shape = manifest.architecture
        self._bos, self._eos = manifest.tokens.bos, manifest.tokens.eos
        self.slots = slots
        self.vocabulary_size = manifest.architecture.vocabulary_size
        self.tokens = np.zeros((slots, 1), np.int64)
        self.log_probabilities = np.zeros(slots, np.float32)
        self.lengths = np.zeros(slots, np.int32)
        self.source_lengths = np.zeros(slots, np.int32)
        self._source_last = np.zeros(slots, np.int32)
        # How many rows the two below belong to; 0 where they are to be found again.
        self._rows_measured = 0
        self._most_words = 0
        self._longest = np.full(1, _LEAST_LONGEST, np.int32)
        self._source_longest = np.full(1, _LEAST_LONGEST, np.int32)
        self._scored = np.array(True)
        self.ranked = 0
        """Best words that the next step lists for each row; set by Search."""
        self.shows_scores = False
        """Whether the next step gives out the scores of all words; set by Search."""
        self.shows_listed = False
        """Whether it does so for rows restricted to many words; set by Vocabularies."""
        self.projects = True
        """Whether the next step finds anything among all words; set by Vocabularies."""
        most_bans = _MOST_LISTED + manifest.limits.max_target_length
        self._bans: dict[int, Sequence[int]] = {}
        self._bans_laid = True
        self._ban_rows = slots
        self._ban_places = 1
        self._adjust_index = np.full(slots * most_bans, self._eos, np.int64)
        self._adjust_value = np.zeros(slots * most_bans, np.float32)
        self._best_tokens = np.zeros(slots * MAX_TOP_K, np.int64)
        self._best_log_probabilities = np.zeros(slots * MAX_TOP_K, np.float32)
        self._scores = np.zeros(slots * self.vocabulary_size, np.float32)
        self._allowed_shape = runtime.allowed_shape
        groups, size = runtime.allowed_shape(self.vocabulary_size)
        self._allowed_words = self._allowed_groups = 0
        self._allowed = np.zeros((groups, size), np.int64)
        self._allowed_scores = np.zeros((slots * groups, size), np.float32)
        self._own, self._memory, self._last = self._allocate(manifest, slots, runtime.cache_type)
        self._step = runtime.step(*self._buffers())

    def _allocate(
        self, manifest: Manifest, slots: int, kept: np.dtype[Any]
    ) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
        heads, size = self._shape.heads, self._shape.head_size
        # The begin token is read too.
        target = manifest.limits.max_target_length + 1
        source = max(manifest.limits.max_source_length, _LEAST_LONGEST)
        own: dict[str, Array] = {}
        memory: dict[str, Array] = {}
        last: dict[str, Array] = {}
        for layer in range(self._shape.decoder_layers):
            for part in ("key", "value"):
                own[f"self_{part}_{layer}"] = np.zeros((slots, heads, target, size), kept)
                memory[f"cross_{part}_{layer}"] = np.zeros((slots, heads, source, size), kept)
                last[f"last_{part}_{layer}"] = np.zeros((slots, 1, heads * size), np.float32)
        return own, memory, last

    def _buffers(self) -> tuple[dict[str, Array], dict[str, Array]]:
        inputs: dict[str, Array] = {
            "tokens": self.tokens,
            "lengths": self.lengths,
            "max_length": self._longest,
            "source_last_index": self._source_last,
            "max_source_length": self._source_longest,
            "bias_tokens": self._adjust_index,
            "bias_values": self._adjust_value,
            "return_logprobs": self._scored,
            "top_k": np.zeros(MAX_TOP_K, np.int64),
            "num_logits": np.zeros(self.vocabulary_size, np.int64),
            "allowed_tokens": self._allowed,
            "projected_rows": np.arange(self.slots),
            **self._own,
            **self._memory,
            **self._last,
        }
        written = {**self._own, **self._memory}
        outputs: dict[str, Array] = {
            "next_tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
            "top_tokens": self._best_tokens,
            "top_log_probabilities": self._best_log_probabilities,
            "logits": self._scores,
            "allowed_logits": self._allowed_scores,
            **{f"new_{name}": array for name, array in written.items()},
        }
        return inputs, outputs

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values."""
        parts = (self._own, self._memory, self._last)
        return sum(array.nbytes for part in parts for array in part.values())

    def join(self, row: int, memory: CrossKV, index: int) -> None:
        """Lays a newly encoded source into a row.

        Args:
            row: A row that is free.
            memory: Of sources encoded together.
            index: Of the source among them.
        """
        length, heads = memory.length(index), self._shape.heads
        for cache, kept in zip(self._memory.values(), memory.kept, strict=True):
            by_head = memory.of_source(kept, index).reshape(length, heads, -1)  # [S, H, D]
            cache[row, :, :length] = by_head.swapaxes(0, 1)
        for cache, last in zip(self._last.values(), memory.last, strict=True):
            cache[row] = last[index]
        self.tokens[row] = self._bos
        self.lengths[row] = 0
        self.source_lengths[row] = length
        self._source_last[row] = length - 1
        self._rows_measured = 0

    def move(self, source: int, target: int) -> None:
        """Copies one row over another, no further than it is filled."""
        length, source_length = self.lengths[source], self.source_lengths[source]
        for cache in self._own.values():
            cache[target, :, :length] = cache[source, :, :length]
        for cache in self._memory.values():
            cache[target, :, :source_length] = cache[source, :, :source_length]
        for cache in self._last.values():
            cache[target] = cache[source]
        for array in (self.tokens, self.lengths, self.source_lengths, self._source_last):
            array[target] = array[source]
        self.unban(target)
        if source in self._bans:
            self.ban(target, self._bans[source])
            self.unban(source)
        self._rows_measured = 0

    def branch(self, sources: Array, targets: Array) -> None:
        """Copies what rows have said over other rows of the same source.

        Args:
            sources: Rows, any of them more than once.
            targets: As many rows, none of them among the sources.
        """
        length = int(self.lengths[sources].max())
        for cache in self._own.values():
            cache[targets, :, :length] = cache[sources, :, :length]
        self.lengths[targets] = self.lengths[sources]
        self._rows_measured = 0

    def clear(self) -> None:
        """Empties all rows, no further than they are filled."""
        length, source_length = self.lengths.max(), self.source_lengths.max()
        for cache in self._own.values():
            cache[:, :, :length] = 0
        for cache in self._memory.values():
            cache[:, :, :source_length] = 0
        for cache in self._last.values():
            cache[:] = 0
        self._rows_measured = 0
        for array in (
            self.tokens,
            self.log_probabilities,
            self.lengths,
            self.source_lengths,
            self._source_last,
        ):
            array[:] = 0

    def ban(self, row: int, words: Sequence[int]) -> None:
        """Keeps a row from saying some words until told else; as many as limits.py lets them be."""
        if self._bans.get(row) != words:
            self._bans[row] = words
            self._bans_laid = False

    def unban(self, row: int) -> None:
        """Lets a row say everything."""
        if self._bans.pop(row, None) is not None:
            self._bans_laid = False

    def allow(self, words: Sequence[int] | Array) -> None:
        """Has steps give out the scores of some words, for every row, until told else.

        Args:
            words: No more than the vocabulary has; none, and a step pays for none.
        """
        self._allowed_words = len(words)
        self._allowed_groups, _ = self._allowed_shape(len(words))
        # What is left of the last group holds words of before: nobody looks at their scores.
        self._allowed.reshape(-1)[: len(words)] = words

    def banned(self, row: int) -> Sequence[int]:
        """Lists what a row must not say."""
        return self._bans.get(row, ())

    def best(self, rows: Sequence[int] | Array) -> tuple[Array, Array]:
        """Gives the best words of rows ``[..]`` and their log-probabilities, ``[.., K]`` each."""
        end = self.slots * self.ranked
        shape = (self.slots, self.ranked)
        words = self._best_tokens[:end].reshape(shape)
        log_probabilities = self._best_log_probabilities[:end].reshape(shape)
        return words[rows], log_probabilities[rows]

    def scores(self, row: int) -> Array:
        """Gives the scores of all words for a row in the last step, ``[V]``."""
        return self._scores[row * self.vocabulary_size : (row + 1) * self.vocabulary_size]

    def allowed_scores(self, row: int) -> Array:
        """Gives the scores of the words allowed for a row in the last step, in their order.

        They are those of :meth:`scores`, but that bans leave them as they are.
        """
        groups = self._allowed_scores[row * self._allowed_groups : (row + 1) * self._allowed_groups]
        return groups.reshape(-1)[: self._allowed_words]

    def advance(self, rows: int, *, scored: bool = True) -> None:
        """Runs one step: each row reads its last word, and its next word takes that place.

        A step that does not project finds nothing among all words: no next ones, so that rows keep
        their last, none that are best and no scores but those of words allowed.

        Args:
            rows: How many leading rows run.
            scored: Whether log-probabilities are wanted.
        """
        self._scored[...] = scored
        if rows != self._rows_measured:
            self._measure(rows)
        self._longest[0] = max(self._most_words + 1, _LEAST_LONGEST)
        if not self._bans_laid or rows > self._ban_rows:
            self._lay_bans(rows)
        if self.projects:
            shown = self.vocabulary_size if self.shows_scores or self.shows_listed else 0
            sizes = Sizes(self._ban_places, self.ranked, shown, self._allowed_groups)
        else:
            sizes = Sizes(allowed_groups=self._allowed_groups, projects=False)
        self._step.run(rows, sizes)
        self.lengths[:rows] += 1
        self._most_words += 1

    def _lay_bans(self, rows: int) -> None:
        """Lays out what is banned, as many places for each row."""
        most = max((len(words) for words in self._bans.values()), default=1)
        # Few sizes, so that few bindings are made.
        places = min(1 << (most - 1).bit_length(), len(self._adjust_index) // self.slots)
        if not self._bans:
            # Once for all, until there are some again.
            rows = self.slots
        self._adjust_index[: rows * places] = self._eos
        self._adjust_value[: rows * places] = 0.0
        for row, words in self._bans.items():
            if row < rows:
                begin = row * places
                self._adjust_index[begin : begin + len(words)] = words
                self._adjust_value[begin : begin + len(words)] = MASKED_LOGIT
        self._bans_laid, self._ban_rows, self._ban_places = True, rows, places

    def _measure(self, rows: int) -> None:
        """Finds the longest of the rows; not needed while the same ones run on."""
        self._most_words = int(self.lengths[:rows].max())
        self._source_longest[0] = max(int(self.source_lengths[:rows].max()), _LEAST_LONGEST)
        self._rows_measured = rows
