"""A runtime without ONNX: each token is a hash of the source and of all tokens before it.

It reads them out of the very caches that the graphs would read, so a row that is moved badly, or
that reads a neighbour, comes out wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from seqserve_server.contract.events import Finished, Hypothesis, StopReason
from seqserve_server.contract.manifest import (
    Architecture,
    FileDigest,
    Limits,
    Manifest,
    Provenance,
    Requirements,
    SpecialTokens,
)
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.packing import CrossKV, starts_of
from seqserve_server.engine.step import StepSizes

PAD, BOS, EOS, UNK = 0, 1, 2, 3
WORDS = 50
MAX_SOURCE, MAX_TARGET = 12, 10
GROUP = 4


def make_manifest(**changes: Any) -> Manifest:
    """Makes a small manifest, some of its fields changed."""
    digest = FileDigest(sha256="0" * 64, bytes=0)
    fields: dict[str, Any] = {
        "name": "fake",
        "version": 1,
        "description": "",
        "licence": "",
        "precision": "fp32",
        "architecture": Architecture(
            encoder_layers=1,
            decoder_layers=2,
            heads=1,
            head_size=1,
            vocabulary_size=WORDS,
            config={},
        ),
        "limits": Limits(max_source_length=MAX_SOURCE, max_target_length=MAX_TARGET),
        "tokens": SpecialTokens(pad=PAD, bos=BOS, eos=EOS, unk=UNK),
        "requirements": Requirements(opset=21, onnxruntime="1.23"),
        "provenance": Provenance(command="", commit="", data_licence="", attribution=""),
        "verification": None,
        "files": dict.fromkeys(("encoder.onnx", "decoder.onnx", "tokenizer.json"), digest),
    }
    return Manifest(**fields | changes)


def next_word(source: list[int], words: list[int], *, may_end: bool) -> tuple[int, float]:
    """Returns the token after ``words``, the begin token first, and a made-up log-probability."""
    value = 17
    for word in [*source, *words]:
        value = (value * 31 + word) % 10_007
    word = EOS if may_end and value % 7 == 0 else 4 + value % (WORDS - 4)
    return word, -(value % 97) / 8


def detokenize(words: Sequence[int]) -> str:
    """Returns a character for each token."""
    return "".join(map(chr, (ord("A") + word for word in words)))


def answer(words: list[int], score: float | None, reason: StopReason) -> Finished:
    """Makes an answer of one hypothesis, the length penalty being 1."""
    read = len(words) + (reason is StopReason.EOS)
    normalized = None if score is None else score / read
    return Finished([Hypothesis(words, score, reason, normalized)])


def expected(source: list[int], options: DecodingOptions) -> Finished:
    """Decodes a source without any engine."""
    words, score = [BOS], 0.0
    while True:
        may_end = len(words) - 1 >= options.min_decoding_length
        word, log_probability = next_word(source, words, may_end=may_end)
        score += log_probability
        told = score if options.return_scores else None
        if word == EOS:
            return answer(words[1:], told, StopReason.EOS)
        words.append(word)
        if len(words) - 1 == options.max_decoding_length:
            return answer(words[1:], told, StopReason.LENGTH)


class FakeStep:
    """Stands for the decoder graph over the buffers of a cache."""

    def __init__(self, runtime: FakeRuntime, inputs: dict[str, Any], outputs: dict[str, Any]):
        self._runtime = runtime
        self._inputs, self._outputs = inputs, outputs

    def run(self, rows: int, sizes: StepSizes) -> None:
        self._places, self._projected = sizes.biases, sizes.projects
        self._runtime.rows.append(rows)
        self._runtime.scored.append(bool(self._inputs["return_logprobs"]))
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
            for part in ("key", "value"):
                inputs[f"self_{part}_{layer}"][row, 0, length, 0] = inputs["tokens"][row, 0]
                cross = inputs[f"cross_{part}_{layer}"][row, 0, :source_length, 0]
                assert cross[-1] == inputs[f"last_{part}_{layer}"][row, 0, 0]
        source = inputs[f"cross_value_{last}"][row, 0, :source_length, 0].astype(int).tolist()
        words = inputs[f"self_value_{last}"][row, 0, : length + 1, 0].astype(int).tolist()
        places = slice(row * self._places, (row + 1) * self._places)
        banned = inputs["bias_tokens"][places][inputs["bias_values"][places] < 0]
        assert set(banned.tolist()) <= {EOS}
        may_end = not banned.size
        word, score = next_word(source, words, may_end=may_end)
        if not self._projected:
            return
        self._outputs["next_tokens"][row, 0] = word
        # A step without log-probabilities must not be relied on for them.
        self._outputs["log_probabilities"][row] = score if inputs["return_logprobs"] else np.nan


class FakeRuntime:
    """Has the methods of a Runtime that an engine calls."""

    def __init__(self, manifest: Manifest | None = None) -> None:
        self.manifest = manifest or make_manifest()
        self._layers = self.manifest.architecture.decoder_layers
        self.cache_type = np.dtype(np.float32)
        self.rows: list[int] = []
        """Rows of every step run."""
        self.scored: list[bool] = []
        """Whether each of them was to give log-probabilities."""
        self.encoded: list[list[int]] = []
        """Lengths of the sources of every batch encoded."""
        self.score_sizes: list[int] = []
        """How many targets were run together, each time."""
        self.can_score = True
        self.before_step: Callable[[], None] = lambda: None
        self.before_score: Callable[[], None] = lambda: None
        self.before_encode: Callable[[], None] = lambda: None

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        self.before_encode()
        self.encoded.append([len(source) for source in sources])
        words = [word for source in sources for word in source]
        if max(words) >= WORDS:
            raise ValueError("a word out of the vocabulary")
        kept = np.array(words, np.float32)[:, None]  # [T, W]
        last = np.array([source[-1] for source in sources], np.float32)[:, None, None]
        parts = range(2 * self._layers)
        return CrossKV(
            [kept.copy() for _ in parts], [last.copy() for _ in parts], starts_of(sources)
        )

    def allowed_shape(self, words: int) -> tuple[int, int]:
        return -(-words // GROUP), GROUP

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> FakeStep:
        return FakeStep(self, inputs, outputs)

    def score(self, source: Any, lengths: Any, target: Any, outputs: list[str]) -> list[Any]:
        """Finds every target sure, and that it attended to nothing."""
        self.before_score()
        rows, read, written = *source.shape, target.shape[1] - 1
        self.score_sizes.append(rows)
        shapes = {
            "log_probabilities": (rows, written),
            "encoder_attention": (1, rows, 1, read, read),
            "decoder_attention": (1, rows, 1, written, written),
            "cross_attention": (1, rows, 1, written, read),
        }
        return [np.zeros(shapes[name], np.float32) for name in outputs]
