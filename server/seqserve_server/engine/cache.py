"""The arrays that a decoder step reads and writes: tokens, lengths, keys and values of every row.

Everything is allocated once, from the model's limits. Running rows are always the leading ones, 0
to n - 1, so that a step reads one contiguous block: the last row replaces one that leaves. A step
costs what its rows hold, not what they could hold, so every row has room for the longest source and
target.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqserve_server.contract.limits import MAX_END_TOKENS, MAX_SUPPRESSED, MAX_TOP_K
from seqserve_server.contract.manifest import Manifest
from seqserve_server.engine.packing import Array, CrossKV
from seqserve_server.engine.runtime import Runtime
from seqserve_server.engine.step import StepSizes

MASKED_LOGIT = np.float32(-1e30)
"""Logit of a suppressed token: below any other, and finite, so that sums with it are numbers."""

# The attention operator takes a maximum length of 1 for the start of a prompt.
_MIN_LENGTH = 2

# Tokens that a request's lists can suppress at once; its n-grams add one for each of its tokens.
_MAX_LISTED = MAX_SUPPRESSED + 1 + MAX_END_TOKENS


class SlotCache:
    """Buffers for a number of slots, bound to one decoder step."""

    def __init__(self, runtime: Runtime, slots: int) -> None:
        """Allocates everything; pages are touched when they are first used."""
        manifest = runtime.manifest
        self._shape = manifest.architecture
        self._bos, self._eos = manifest.tokens.bos, manifest.tokens.eos
        self.slots = slots
        self.vocabulary_size = manifest.architecture.vocabulary_size
        self.tokens = np.zeros((slots, 1), np.int64)
        """Newest token of each row: what the next step reads."""
        self.log_probabilities = np.zeros(slots, np.float32)
        self.lengths = np.zeros(slots, np.int32)
        self.source_lengths = np.zeros(slots, np.int32)
        self._source_last_index = np.zeros(slots, np.int32)
        # How many rows the two maxima below belong to; 0 where they must be found again.
        self._rows_measured = 0
        self._num_tokens = 0
        self._max_length = np.full(1, _MIN_LENGTH, np.int32)
        self._max_source_length = np.full(1, _MIN_LENGTH, np.int32)
        self._return_logprobs = np.array(True)
        max_suppressed = _MAX_LISTED + manifest.limits.max_target_length
        self._suppressed: dict[int, Sequence[int]] = {}
        self._is_mask_ready = True
        self._mask_rows, self._mask_width = slots, 1
        self._bias_tokens = np.full(slots * max_suppressed, self._eos, np.int64)
        self._bias_values = np.zeros(slots * max_suppressed, np.float32)
        self.top_k = 0
        """Top tokens that steps list for each row."""
        self._top_tokens = np.zeros(slots * MAX_TOP_K, np.int64)
        self._top_log_probabilities = np.zeros(slots * MAX_TOP_K, np.float32)
        self.num_logits = 0
        """Logits that steps return for each row."""
        self._logits = np.zeros(slots * self.vocabulary_size, np.float32)
        self.projects = True
        """Whether steps look at the whole vocabulary."""
        self._allowed_shape = runtime.allowed_shape
        groups, size = runtime.allowed_shape(self.vocabulary_size)
        self._num_allowed = self._allowed_groups = 0
        self._allowed_tokens = np.zeros((groups, size), np.int64)
        self._allowed_logits = np.zeros((slots * groups, size), np.float32)
        self._self_kv, self._cross_kv, self._last_kv = self._allocate(
            manifest, slots, runtime.cache_type
        )
        self._step = runtime.step(*self._buffers())

    def _allocate(
        self, manifest: Manifest, slots: int, dtype: np.dtype[Any]
    ) -> tuple[dict[str, Array], dict[str, Array], dict[str, Array]]:
        heads, size = self._shape.heads, self._shape.head_size
        # The begin token is read too.
        target = manifest.limits.max_target_length + 1
        source = max(manifest.limits.max_source_length, _MIN_LENGTH)
        own: dict[str, Array] = {}
        cross: dict[str, Array] = {}
        last: dict[str, Array] = {}
        for layer in range(self._shape.decoder_layers):
            for part in ("key", "value"):
                own[f"self_{part}_{layer}"] = _untouched((slots, heads, target, size), dtype)
                cross[f"cross_{part}_{layer}"] = _untouched((slots, heads, source, size), dtype)
                last[f"last_{part}_{layer}"] = np.zeros((slots, 1, heads * size), np.float32)
        return own, cross, last

    def _buffers(self) -> tuple[dict[str, Array], dict[str, Array]]:
        inputs: dict[str, Array] = {
            "tokens": self.tokens,
            "lengths": self.lengths,
            "max_length": self._max_length,
            "source_last_index": self._source_last_index,
            "max_source_length": self._max_source_length,
            "bias_tokens": self._bias_tokens,
            "bias_values": self._bias_values,
            "return_logprobs": self._return_logprobs,
            "top_k": np.zeros(MAX_TOP_K, np.int64),
            "num_logits": np.zeros(self.vocabulary_size, np.int64),
            "allowed_tokens": self._allowed_tokens,
            "projected_rows": np.arange(self.slots),
            **self._self_kv,
            **self._cross_kv,
            **self._last_kv,
        }
        written = {**self._self_kv, **self._cross_kv}
        outputs: dict[str, Array] = {
            "next_tokens": self.tokens,
            "log_probabilities": self.log_probabilities,
            "top_tokens": self._top_tokens,
            "top_log_probabilities": self._top_log_probabilities,
            "logits": self._logits,
            "allowed_logits": self._allowed_logits,
            **{f"new_{name}": array for name, array in written.items()},
        }
        return inputs, outputs

    @property
    def bytes(self) -> int:
        """Bytes of the keys and values."""
        parts = (self._self_kv, self._cross_kv, self._last_kv)
        return sum(array.nbytes for part in parts for array in part.values())

    def join(self, row: int, cross_kv: CrossKV, index: int) -> None:
        """Copies a newly encoded source into a free row."""
        length, heads = cross_kv.length(index), self._shape.heads
        for cache, packed in zip(self._cross_kv.values(), cross_kv.packed, strict=True):
            by_head = cross_kv.of_source(packed, index).reshape(length, heads, -1)  # [S, H, D]
            cache[row, :, :length] = by_head.swapaxes(0, 1)
        for cache, last in zip(self._last_kv.values(), cross_kv.last, strict=True):
            cache[row] = last[index]
        self.tokens[row] = self._bos
        self.lengths[row] = 0
        self.source_lengths[row] = length
        self._source_last_index[row] = length - 1
        self._rows_measured = 0

    def move(self, source: int, target: int) -> None:
        """Copies one row over another, no further than it is filled."""
        length, source_length = self.lengths[source], self.source_lengths[source]
        for cache in self._self_kv.values():
            cache[target, :, :length] = cache[source, :, :length]
        for cache in self._cross_kv.values():
            cache[target, :, :source_length] = cache[source, :, :source_length]
        for cache in self._last_kv.values():
            cache[target] = cache[source]
        for array in (self.tokens, self.lengths, self.source_lengths, self._source_last_index):
            array[target] = array[source]
        self.suppress(target, self._suppressed.get(source, ()))
        self.release(source)
        self._rows_measured = 0

    def branch(self, sources: Array, targets: Array) -> None:
        """Copies the targets of rows over other rows of the same source."""
        length = int(self.lengths[sources].max())
        for cache in self._self_kv.values():
            cache[targets, :, :length] = cache[sources, :, :length]
        self.lengths[targets] = self.lengths[sources]
        self._rows_measured = 0

    def clear(self) -> None:
        """Empties all rows, no further than they are filled."""
        length, source_length = self.lengths.max(), self.source_lengths.max()
        for cache in self._self_kv.values():
            cache[:, :, :length] = 0
        for cache in self._cross_kv.values():
            cache[:, :, :source_length] = 0
        for cache in self._last_kv.values():
            cache[:] = 0
        for array in (self.tokens, self.log_probabilities, self.lengths, self.source_lengths):
            array[:] = 0
        self._source_last_index[:] = 0
        self._rows_measured = 0

    def suppress(self, row: int, tokens: Sequence[int]) -> None:
        """Masks some tokens of a row in all steps from now on; none lifts the mask."""
        if not tokens:
            self.release(row)
        elif self._suppressed.get(row) != tokens:
            self._suppressed[row] = tokens
            self._is_mask_ready = False

    def release(self, row: int) -> None:
        """Lifts the mask of a row."""
        if self._suppressed.pop(row, None) is not None:
            self._is_mask_ready = False

    def suppressed(self, row: int) -> Sequence[int]:
        """Lists the masked tokens of a row."""
        return self._suppressed.get(row, ())

    def request(self, *, top_k: int, logits: bool, allowed: Array, projects: bool) -> None:
        """Sets what the next steps compute for every row, beside its next token.

        Args:
            top_k: How many top tokens to list; at most all tokens are.
            logits: Whether to return the logits of all tokens.
            allowed: Tokens whose logits to return by themselves, ``[N]``; a step pays for none
                where it is empty.
            projects: Whether to look at the whole vocabulary at all. If not, there is no next token
                and no top token.
        """
        self.top_k = min(top_k, MAX_TOP_K, self.vocabulary_size)
        self.num_logits = self.vocabulary_size if logits else 0
        self._num_allowed = len(allowed)
        self._allowed_groups, _ = self._allowed_shape(len(allowed))
        # The rest of the last group holds older tokens: nobody reads their logits.
        self._allowed_tokens.reshape(-1)[: len(allowed)] = allowed
        self.projects = projects

    def top_tokens(self, rows: Sequence[int] | Array) -> tuple[Array, Array]:
        """Gives the top tokens of rows ``[..]`` and their log-probabilities, ``[.., K]`` each."""
        end, shape = self.slots * self.top_k, (self.slots, self.top_k)
        tokens = self._top_tokens[:end].reshape(shape)
        log_probabilities = self._top_log_probabilities[:end].reshape(shape)
        return tokens[rows], log_probabilities[rows]

    def logits(self, row: int) -> Array:
        """Gives the logits of all tokens for a row in the last step, ``[V]``."""
        return self._logits[row * self.vocabulary_size : (row + 1) * self.vocabulary_size]

    def allowed_logits(self, row: int) -> Array:
        """Gives the logits of the allowed tokens for a row in the last step, in their order.

        They equal those of :meth:`logits`, but no mask is applied.
        """
        groups = self._allowed_logits[row * self._allowed_groups : (row + 1) * self._allowed_groups]
        return groups.reshape(-1)[: self._num_allowed]

    def advance(self, rows: int, *, return_logprobs: bool = True) -> None:
        """Runs one step: each row reads its newest token, and its next token takes that place."""
        self._return_logprobs[...] = return_logprobs
        if rows != self._rows_measured:
            self._measure(rows)
        self._max_length[0] = max(self._num_tokens + 1, _MIN_LENGTH)
        if not self._is_mask_ready or rows > self._mask_rows:
            self._write_mask(rows)
        if self.projects:
            groups = self._allowed_groups
            sizes = StepSizes(self._mask_width, self.top_k, self.num_logits, groups)
        else:
            sizes = StepSizes(allowed_groups=self._allowed_groups, projects=False)
        self._step.run(rows, sizes)
        self.lengths[:rows] += 1
        self._num_tokens += 1

    def assert_idle(self) -> None:
        """Checks that no row has left a mask or a request behind; for tests of leaks.

        Raises:
            AssertionError: One has.
        """
        assert not self._suppressed
        assert (self.top_k, self.num_logits, self._num_allowed) == (0, 0, 0)

    def _write_mask(self, rows: int) -> None:
        """Writes the masks of the leading rows, all of one width."""
        longest = max((len(tokens) for tokens in self._suppressed.values()), default=1)
        # Few widths, so that few bindings are made.
        width = min(1 << (longest - 1).bit_length(), len(self._bias_tokens) // self.slots)
        if not self._suppressed:
            # Once for all rows, until there is a mask again.
            rows = self.slots
        self._bias_tokens[: rows * width] = self._eos
        self._bias_values[: rows * width] = 0.0
        for row, tokens in self._suppressed.items():
            if row < rows:
                begin = row * width
                self._bias_tokens[begin : begin + len(tokens)] = tokens
                self._bias_values[begin : begin + len(tokens)] = MASKED_LOGIT
        self._is_mask_ready, self._mask_rows, self._mask_width = True, rows, width

    def _measure(self, rows: int) -> None:
        """Finds the longest of the rows; not needed while the same ones run on."""
        self._num_tokens = int(self.lengths[:rows].max())
        self._max_source_length[0] = max(int(self.source_lengths[:rows].max()), _MIN_LENGTH)
        self._rows_measured = rows


def _untouched(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocates zeros that take memory page by page, as they are written.

    Those of numpy would take it in huge pages: a row that is hardly filled takes all it could hold.
    """
    memory = mmap.mmap(-1, math.prod(shape) * dtype.itemsize)
    with contextlib.suppress(AttributeError, OSError):  # a system without them
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, dtype).reshape(shape)
