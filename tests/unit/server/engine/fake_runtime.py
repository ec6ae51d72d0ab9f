"""A model without ONNX Runtime: each next token is a hash of the source and of all tokens so far.

:class:`FakeRuntime` stands for :class:`~seqserve_server.engine.runtime.Runtime`. Its step reads the
tokens from the same buffers as the decoder graph, so the output is wrong where a row is moved badly
or reads a neighbour. :func:`expected` computes the answer to a request without an engine.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from seqserve_server.artifact.files import FileDigest
from seqserve_server.artifact.manifest import (
    Architecture,
    Limits,
    Manifest,
    Requirements,
    SpecialTokens,
)
from seqserve_server.artifact.records import Provenance
from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.candidate_step import Table
from seqserve_server.engine.decoder_state import CrossAttentionCache, TargetState, allocate_state
from seqserve_server.engine.packing import Array, CrossKV, EncodingLimits, starts_of
from seqserve_server.engine.runtime import doubling
from seqserve_server.engine.shortlist import Shortlist
from seqserve_server.engine.step import StepSizes

PAD, BOS, EOS, UNK = 0, 1, 2, 3
VOCABULARY_SIZE = 50
MAX_SOURCE, MAX_TARGET = 12, 10
GROUP = 4
PATIENCE_S = 60.0
GROUP_TOKENS = 192
"""Source tokens encoded together."""


ARCHITECTURE = Architecture(
    encoder_layers=1,
    decoder_layers=2,
    heads=1,
    head_size=1,
    vocabulary_size=VOCABULARY_SIZE,
    config={},
)
RECURRENT = replace(ARCHITECTURE, cell_width=MAX_TARGET + 2)
"""A state is the number of tokens read, then these tokens."""


def make_manifest(**changes: Any) -> Manifest:
    """Makes the manifest of a small model; ``changes`` replace its fields."""
    digest = FileDigest(sha256="0" * 64, bytes=0)
    fields: dict[str, Any] = {
        "name": "fake",
        "version": 1,
        "description": "",
        "licence": "",
        "precision": "fp32",
        "architecture": ARCHITECTURE,
        "limits": Limits(max_source_length=MAX_SOURCE, max_target_length=MAX_TARGET),
        "tokens": SpecialTokens(pad=PAD, bos=BOS, eos=EOS, unk=UNK),
        "requirements": Requirements(opset=21, onnxruntime="1.23"),
        "provenance": Provenance(command="", commit="", data_licence="", attribution=""),
        "verification": None,
        "files": dict.fromkeys(("encoder.onnx", "decoder.onnx", "tokenizer.json"), digest),
    }
    return Manifest(**fields | changes)


def next_token(source: list[int], tokens: list[int], *, may_end: bool) -> tuple[int, float]:
    """Gives the token after ``tokens``, the begin token first, and a made-up log-probability."""
    value = 17
    for token in [*source, *tokens]:
        value = (value * 31 + token) % 10_007
    token = EOS if may_end and value % 7 == 0 else 4 + value % (VOCABULARY_SIZE - 4)
    return token, -(value % 97) / 8


def detokenize(token_ids: Sequence[int]) -> str:
    return "".join(map(chr, (ord("A") + token for token in token_ids)))


def answer(token_ids: list[int], score: float | None, reason: StopReason) -> Finished:
    """Makes an answer of one hypothesis; the length penalty is 1."""
    length = len(token_ids) + (reason is StopReason.EOS)
    normalized = None if score is None else score / length
    return Finished([Hypothesis(token_ids, score, reason, normalized)])


def expected(source: list[int], options: DecodingOptions) -> Finished:
    """Decodes a source greedily without an engine."""
    tokens, total = [BOS], 0.0
    while True:
        may_end = len(tokens) - 1 >= options.min_decoding_length
        token, log_probability = next_token(source, tokens, may_end=may_end)
        total += log_probability
        score = total if options.return_scores else None
        if token == EOS:
            return answer(tokens[1:], score, StopReason.EOS)
        tokens.append(token)
        if len(tokens) - 1 == options.max_decoding_length:
            return answer(tokens[1:], score, StopReason.LENGTH)


def write_allowed_logits(
    of_rows: Array, sizes: StepSizes, inputs: dict[str, Any], outputs: dict[str, Any]
) -> None:
    """Writes what a step gives of groups of candidates, from all logits of each row ``[R, V]``."""
    shape = sizes.allowed_groups, sizes.allowed_rows
    rows = inputs["allowed_rows"][: math.prod(shape)].reshape(shape)
    tokens = inputs["allowed_tokens"][: sizes.allowed_groups]
    found = of_rows[rows[..., None], tokens[:, None]].swapaxes(0, 1)  # [M, G, 64]
    outputs["allowed_logits"][: rows.size] = found.reshape(rows.size, tokens.shape[1])


class FakeStep:
    """Stands for the decoder graph over the buffers of a cache; checks its inputs."""

    def __init__(self, runtime: FakeRuntime, inputs: dict[str, Any], outputs: dict[str, Any]):
        self._runtime = runtime
        self._inputs, self._outputs = inputs, outputs

    def run(self, rows: int, sizes: StepSizes) -> None:
        self._biases, self._projects = sizes.biases, sizes.projects
        self._runtime.rows.append(rows)
        self._runtime.returned_logprobs.append(bool(self._inputs["return_logprobs"]))
        self._runtime.before_step()
        lengths = self._inputs["lengths"]
        assert self._inputs["max_length"][0] == max(2, lengths[:rows].max() + 1)
        sources = self._inputs["source_last_index"][:rows] + 1
        assert self._inputs["max_source_length"][0] == max(2, sources.max())
        for row in range(rows):
            self._step(row, int(lengths[row]), int(sources[row]))

    def _step(self, row: int, length: int, source_length: int) -> None:
        inputs, last = self._inputs, self._runtime.manifest.architecture.decoder_layers - 1
        for layer in range(last + 1):
            tokens = self._read(row, layer, length)
            for part in ("key", "value"):
                cross = inputs[f"cross_{part}_{layer}"][row, 0, :source_length, 0]
                assert cross[-1] == inputs[f"last_{part}_{layer}"][row, 0, 0]
        source = inputs[f"cross_value_{last}"][row, 0, :source_length, 0].astype(int).tolist()
        mine = slice(row * self._biases, (row + 1) * self._biases)
        suppressed = inputs["bias_tokens"][mine][inputs["bias_values"][mine] < 0]
        assert set(suppressed.tolist()) <= {EOS}
        token, found = next_token(source, tokens, may_end=not suppressed.size)
        if not self._projects:
            return
        self._outputs["next_tokens"][row, 0] = token
        # NaN, so that a test fails where a log-probability is used that the step was not asked for.
        self._outputs["log_probabilities"][row] = found if inputs["return_logprobs"] else np.nan

    def _read(self, row: int, layer: int, length: int) -> list[int]:
        """Adds a row's newest token to its past; gives all that it has read."""
        newest = self._inputs["tokens"][row, 0]
        if self._runtime.manifest.architecture.cell_width:
            state = self._inputs[f"cell_{layer}"][row]
            assert state[0] == length
            state[0], state[length + 1] = length + 1, newest
            return state[1 : length + 2].astype(int).tolist()  # type: ignore[no-any-return]
        for part in ("key", "value"):
            past = self._inputs[f"self_{part}_{layer}"][row, 0, : length + 1, 0]
            past[length] = newest
        return past.astype(int).tolist()  # type: ignore[no-any-return]


class FakeDraftReader:
    """Stands for the graph that reads drafts; records how many tokens each pass read."""

    def __init__(self) -> None:
        self.passes: list[int] = []

    def read(self, inputs: dict[str, Any]) -> list[Any]:
        caches = [array for name, array in inputs.items() if name.startswith("self_")]
        crossed = [array for name, array in inputs.items() if name.startswith("cross_")]
        tokens = inputs["tokens"][:, 0].tolist()
        before = caches[-1][0, 0, :, 0].astype(int).tolist()
        length = int(inputs["source_last_index"][0]) + 1
        source = crossed[-1][0, 0, :length, 0].astype(int).tolist()
        self.passes.append(len(tokens))
        assert inputs["lengths"].tolist() == [len(before) + at for at in range(len(tokens))]
        assert inputs["max_length"].tolist() == [len(before) + len(tokens)]
        found = [
            next_token(source, [*before, *tokens[: at + 1]], may_end=True)
            for at in range(len(tokens))
        ]
        scores = [score for _, score in found] if inputs["return_logprobs"] else []
        entries = np.array(tokens, np.float32)[None, None, :, None]
        best = np.array([[token] for token, _ in found])
        return [best, np.array(scores, np.float32), *(entries for _ in caches)]


class CpuRuntime:
    """What all that stand for a loaded model on a CPU have in common."""

    manifest: Manifest
    cache_type: np.dtype[Any]

    def decoder_state(self, slots: int) -> tuple[TargetState, CrossAttentionCache]:
        return allocate_state(self.manifest, slots, self.cache_type)

    def warm_up_steps(self, slots: int) -> list[tuple[int, bool]]:
        return [(rows, True) for rows in doubling(slots)]

    unrecorded_steps = 0

    def warm_up(self) -> None:
        """Has nothing to prepare."""

    multiple = 1
    """A step runs over a multiple of so many rows."""

    def step_rows(self, rows: int, slots: int) -> int:
        return min(-(-rows // self.multiple) * self.multiple, slots)

    def use_idle_time(self) -> None:
        """Has nothing to prepare."""

    def encoding_limits(self, budget_tokens: int) -> EncodingLimits:
        return EncodingLimits(budget_tokens, min(budget_tokens, GROUP_TOKENS))

    def gpu_memory(self) -> tuple[int, int]:
        return 0, 0

    def is_usable(self) -> bool:
        return True


class FakeRuntime(CpuRuntime):
    """Stands for a loaded model; records what it is asked to run."""

    def __init__(self, manifest: Manifest | None = None) -> None:
        self.manifest = manifest or make_manifest()
        self._layers = self.manifest.architecture.decoder_layers
        self.cache_type = np.dtype(np.float32)
        self.rows: list[int] = []
        """How many rows each step ran."""
        self.returned_logprobs: list[bool] = []
        """Whether each step was asked for log-probabilities."""
        self.encoded: list[list[int]] = []
        """Lengths of the sources of each batch encoded."""
        self.scored: list[int] = []
        """How many targets each run of the scorer took."""
        self.can_score = True
        self.usable = True
        """Whether steps may succeed after a failure."""
        self.shortlist: Shortlist | None = None
        self.candidate_tables: list[Table] = []
        self.draft_reader: FakeDraftReader | None = None
        self.inputs: dict[str, Any] = {}
        """Buffers that the steps of the last cache read."""
        self.outputs: dict[str, Any] = {}
        """Buffers that they write."""
        self.before_step: Callable[[], None] = lambda: None
        self.before_score: Callable[[], None] = lambda: None
        self.before_encode: Callable[[], None] = lambda: None

    @property
    def has_open_scorer(self) -> bool:
        return self.can_score

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        self.before_encode()
        self.encoded.append([len(source) for source in sources])
        tokens = [token for source in sources for token in source]
        if max(tokens) >= VOCABULARY_SIZE:
            raise ValueError("a token out of the vocabulary")
        packed = np.array(tokens, np.float32)[:, None]  # [T, W]
        last = np.array([source[-1] for source in sources], np.float32)[:, None, None]
        parts = range(2 * self._layers)
        return CrossKV(
            [packed.copy() for _ in parts], [last.copy() for _ in parts], starts_of(sources)
        )

    def allowed_shape(self, tokens: int) -> tuple[int, int]:
        return -(-tokens // GROUP), GROUP

    def candidate_weights(self, tokens: Array) -> list[Array]:
        return []

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        self.inputs, self.outputs = inputs, outputs
        return FakeStep(self, inputs, outputs)

    def is_usable(self) -> bool:
        return self.usable

    def free_scratch(self) -> None:
        """Keeps none."""

    def score(self, source: Any, lengths: Any, target: Any, outputs: list[str]) -> list[Any]:
        """Gives every token of a target probability 1, and no attention."""
        self.before_score()
        rows, source_length, length = *source.shape, target.shape[1] - 1
        self.scored.append(rows)
        shapes = {
            "log_probabilities": (rows, length),
            "encoder_attention": (1, rows, 1, source_length, source_length),
            "decoder_attention": (1, rows, 1, length, length),
            "cross_attention": (1, rows, 1, length, source_length),
        }
        return [np.zeros(shapes[name], np.float32) for name in outputs]


class HeldRuntime(FakeRuntime):
    """A model whose steps and whose scorer wait while a test holds them."""

    def __init__(self) -> None:
        super().__init__()
        self.may_step, self.may_score = threading.Event(), threading.Event()
        self.stepping, self.scoring = threading.Event(), threading.Event()
        self.let_go()
        self.before_step = lambda: self._wait(self.stepping, self.may_step)
        self.before_score = lambda: self._wait(self.scoring, self.may_score)

    @staticmethod
    def _wait(begun: threading.Event, may_go_on: threading.Event) -> None:
        begun.set()
        assert may_go_on.wait(PATIENCE_S)

    def let_go(self) -> None:
        self.may_step.set()
        self.may_score.set()
