"""A model that answers with its source, for tests of everything around a model.

``EchoRuntime`` stands for ``engine.runtime.Runtime``, that is ONNX Runtime with the graphs of a
model; the real engine runs on it. Its encoder returns the source itself as keys, its decoder copies
the next source token with a fixed score. Tests pause it (``may_run``, ``may_score``), slow it down
(``step_s``), step by step (``hold_after``), or make it raise (``fault``). ``byte_tokenizer`` and
``manifest`` complete the model.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tests.unit.server.engine.fake_runtime import CpuRuntime, make_manifest
from tokenizers import decoders, models, pre_tokenizers

from seqserve_server.artifact.manifest import Architecture, Limits, Manifest
from seqserve_server.contract.limits import Provider
from seqserve_server.contract.stats import Ready
from seqserve_server.engine.candidate_step import Table
from seqserve_server.engine.packing import CrossKV, starts_of
from seqserve_server.engine.step import StepSizes
from seqserve_server.front.engine_client.group import EngineGroup
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import BOS, EOS, PAD, UNK

Array = NDArray[Any]

PATIENCE_S = 60.0
TOKEN_SCORE = -0.5
MAX_SOURCE, MAX_TARGET = 64, 48
SHAPE = Architecture(
    encoder_layers=1, decoder_layers=1, heads=1, head_size=1, vocabulary_size=260, config={}
)


def byte_tokenizer(*pairs: tuple[str, str]) -> Tokenizer:
    """A tokenizer with one token per byte, so that characters are split, and one for each pair."""
    tokens = [
        PAD,
        BOS,
        EOS,
        UNK,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *map("".join, pairs),
    ]
    vocabulary = {token: id_ for id_, token in enumerate(tokens)}
    raw = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=list(pairs)))
    raw.add_special_tokens([PAD, BOS, EOS, UNK])
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    return Tokenizer(raw)


def manifest(name: str = "echo", version: int = 1) -> Manifest:
    return make_manifest(
        name=name,
        version=version,
        description="answers with the source",
        licence="Apache-2.0",
        architecture=SHAPE,
        limits=Limits(max_source_length=MAX_SOURCE, max_target_length=MAX_TARGET),
        files={},
    )


def echo_model(
    described: Manifest | None = None, tokenizer: Tokenizer | None = None, max_rows: int = 8
) -> ServedModel:
    """A loaded model without an engine, for what reads requests and writes answers."""
    engine = SimpleNamespace(capacity=Ready(slots=8, max_rows=max_rows, cache_bytes=0))
    return ServedModel(
        manifest=described or manifest(),
        tokenizer=tokenizer or byte_tokenizer(),
        engine=cast(EngineGroup, engine),
        provider=Provider.CPU,
    )


class EchoRuntime(CpuRuntime):
    """Stands for the runtime of a model; see the top of the file."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.cache_type = np.dtype(np.float32)
        self.can_score = True
        self.shortlist = None
        self.draft_reader = None
        self.candidate_tables: list[Table] = []
        self.step_s = 0.0
        self.fault: Exception | None = None
        self.may_run = threading.Event()
        self.may_run.set()
        self._steps: threading.Semaphore | None = None
        self.scoring = threading.Event()
        self.may_score = threading.Event()
        self.may_score.set()

    def hold_after(self, steps: int) -> None:
        """Makes only so many more steps, and those that are allowed later."""
        self._steps = threading.Semaphore(steps)

    def allow(self, steps: int = 1) -> None:
        if self._steps is not None:
            self._steps.release(steps)

    def go_on(self) -> None:
        """Makes all steps again."""
        held, self._steps = self._steps, None
        if held is not None:
            held.release()

    def take_turn(self) -> None:
        self.may_run.wait(PATIENCE_S)
        if (steps := self._steps) is not None:
            steps.acquire(timeout=PATIENCE_S)

    @property
    def has_open_scorer(self) -> bool:
        return self.can_score

    def encode(self, sources: Sequence[Sequence[int]]) -> CrossKV:
        keys = np.array([id_ for source in sources for id_ in source], np.float32)[:, None]
        last = np.array([source[-1] for source in sources], np.float32)[:, None, None]
        return CrossKV([keys, keys], [last, last], starts_of(sources))

    def allowed_shape(self, tokens: int) -> tuple[int, int]:
        return tokens, 1

    def candidate_weights(self, tokens: Array) -> list[Array]:
        return []

    def step(self, inputs: dict[str, Array], outputs: dict[str, Array]) -> EchoStep:
        return EchoStep(self, inputs, outputs)

    def free_scratch(self) -> None:
        """Keeps none."""

    def score(self, source: Array, lengths: Array, target: Array, outputs: list[str]) -> list[Any]:
        """Gives each token the score that a step gives; has no attention."""
        assert outputs == ["log_probabilities"]
        self.scoring.set()
        self.may_score.wait(PATIENCE_S)
        return [np.full((len(target), target.shape[1] - 1), TOKEN_SCORE, np.float32)]


class EchoStep:
    """One step: gives each row the next token of its source."""

    def __init__(
        self, runtime: EchoRuntime, inputs: dict[str, Array], outputs: dict[str, Array]
    ) -> None:
        self._runtime, self._inputs, self._outputs = runtime, inputs, outputs

    def run(self, rows: int, sizes: StepSizes) -> None:
        self._runtime.take_turn()
        time.sleep(self._runtime.step_s)
        if self._runtime.fault is not None:
            raise self._runtime.fault
        positions = self._inputs["lengths"][:rows]
        token_ids = self._inputs["cross_key_0"][np.arange(rows), 0, positions, 0]
        self._outputs["next_tokens"][:rows, 0] = token_ids
        self._outputs["log_probabilities"][:rows] = TOKEN_SCORE
