"""A model that is a table of probabilities, and searches stepped over it by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest
from tests.unit.server.engine.requests import generation

from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.manifest import Architecture, Limits, SpecialTokens
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.engine.cache import MASKED_LOGIT, SlotCache
from seqserve_server.engine.decoding.search import Advance, Search
from seqserve_server.engine.request import Request
from seqserve_server.engine.step import StepSizes

Array = NDArray[Any]

EOS, WORDS, BOS = 0, 8, 9
LEAST = 1e-9
"""Probability of a word that the table does not name; they do not quite sum to 1 then."""

MANIFEST = make_manifest(
    architecture=Architecture(
        encoder_layers=1, decoder_layers=1, heads=1, head_size=1, vocabulary_size=WORDS, config={}
    ),
    limits=Limits(max_source_length=2, max_target_length=300),
    tokens=SpecialTokens(pad=BOS, bos=BOS, eos=EOS, unk=BOS),
)

Table = Callable[[tuple[int, ...]], Mapping[int, float]]
"""Gives the probabilities of the words that come after some."""


def always(probabilities: Mapping[int, float]) -> Table:
    """Makes a table in which nothing depends on what was said."""
    return lambda words: probabilities


def after(tree: Mapping[tuple[int, ...], Mapping[int, float]]) -> Table:
    """Makes a table of some beginnings; everything else ends at once."""
    return lambda words: tree.get(words, {EOS: 1.0})


def anything(seed: int) -> Table:
    """Makes a table of random probabilities, other ones after whatever was said."""

    @cache
    def table(words: tuple[int, ...]) -> Mapping[int, float]:
        random = np.random.default_rng([seed, *words])
        return dict(enumerate((random.dirichlet(np.full(WORDS, 0.5)) + 1e-6).tolist()))

    return table


def spelt(words: Sequence[int]) -> str:
    """Writes word 1 as ``a``, word 2 as ``bb``, word 3 as ``ccc``."""
    return "".join("_abcdefg"[word] * word for word in words)


def log(*probabilities: float) -> Any:
    """Gives the logarithm of their product, as near as single precision comes."""
    # A float32 near log(1e-6) is 1e-6 away from the next one.
    eps = float(np.finfo(np.float32).eps)
    return pytest.approx(math.log(math.prod(probabilities)), rel=4 * eps, abs=1e-6)


def scores_after(table: Table, words: tuple[int, ...], banned: Iterable[int] = ()) -> Array:
    """Gives what a graph would: logarithms, those of banned words lowered beyond reach."""
    scores = np.full(WORDS, math.log(LEAST), np.float32)
    for word, probability in table(words).items():
        scores[word] = math.log(probability)
    scores[list(banned)] += MASKED_LOGIT
    return scores


class TableStep:
    """Stands for the decoder graph; gives what is asked for, and not a number for all else."""

    def __init__(self, tables: list[Table], inputs: dict[str, Array], outputs: dict[str, Array]):
        self._tables, self._inputs, self._outputs = tables, inputs, outputs

    def said(self, row: int) -> tuple[int, ...]:
        """Gives the words that a row has read, and the one that it is to read next."""
        inputs = self._inputs
        read = inputs["self_value_0"][row, 0, 1 : inputs["lengths"][row], 0]
        return (*read.astype(int).tolist(), int(inputs["tokens"][row, 0]))

    def run(self, rows: int, sizes: StepSizes) -> None:
        for name in ("log_probabilities", "top_log_probabilities", "logits"):
            self._outputs[name][:] = np.nan
        for row in range(rows):
            self._step(row, sizes)

    def _step(self, row: int, sizes: StepSizes) -> None:
        inputs, outputs = self._inputs, self._outputs
        length = int(inputs["lengths"][row])
        inputs["self_value_0"][row, 0, length, 0] = inputs["tokens"][row, 0]
        words = tuple(inputs["self_value_0"][row, 0, 1 : length + 1, 0].astype(int).tolist())
        table = self._tables[int(inputs["cross_value_0"][row, 0, 0, 0])]
        places = slice(row * sizes.biases, (row + 1) * sizes.biases)
        banned = inputs["bias_tokens"][places][inputs["bias_values"][places] < 0]
        scores = scores_after(table, words, set(banned.tolist()))
        found = scores - np.logaddexp.reduce(scores)
        order = np.argsort(-found, kind="stable")
        outputs["next_tokens"][row, 0] = order[0]
        if inputs["return_logprobs"]:
            outputs["log_probabilities"][row] = found[order[0]]
        places = slice(row * sizes.top_k, (row + 1) * sizes.top_k)
        outputs["top_tokens"][places] = order[: sizes.top_k]
        outputs["top_log_probabilities"][places] = found[order[: sizes.top_k]]
        outputs["logits"][row * sizes.logits : (row + 1) * sizes.logits] = scores[: sizes.logits]


class TableRuntime(FakeRuntime):
    """Reads sources that are the numbers of tables."""

    def __init__(self) -> None:
        super().__init__(MANIFEST)
        self.tables: list[Table] = []

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        self.only_step = TableStep(self.tables, inputs, outputs)
        return self.only_step


def made(**options: Any) -> DecodingOptions:
    """Makes options that need say only what they are about."""
    return DecodingOptions(**{"max_decoding_length": 9} | options)


class Rig:
    """Searches whose rows join, move and leave by hand."""

    def __init__(self, slots: int = 12) -> None:
        self.runtime = TableRuntime()
        self.cache = SlotCache(self.runtime, slots)
        self.search = Search(self.cache, MANIFEST, spelt)
        self.held: dict[int, Request] = {}

    def join(self, rows: Iterable[int], table: Table, **options: Any) -> Request:
        self.runtime.tables.append(table)
        source = [len(self.runtime.tables) - 1, EOS]
        request = generation(source, made(**options))
        memory, places = self.runtime.encode([source]), list(rows)
        for row in places:
            self.cache.join(row, memory, 0)
        self.search.join(places, request)
        self.held.update(dict.fromkeys(places, request))
        return request

    def step(self) -> Advance:
        """Steps over all rows; those that are done leave."""
        count = max(self.held) + 1
        self.cache.advance(count)
        ended = self.search.advance(count)
        self.leave(*ended.rows)
        return ended

    def leave(self, *rows: int) -> None:
        for row in rows:
            self.search.leave(row)
            del self.held[row]

    def move(self, source: int, target: int) -> None:
        self.cache.move(source, target)
        self.search.move(source, target)
        self.held[target] = self.held.pop(source)

    def compact(self) -> None:
        """Moves the last rows into the holes that others have left, the highest hole first."""
        for hole in sorted(set(range(max(self.held, default=0))) - set(self.held), reverse=True):
            self.move(max(self.held), hole)

    def said(self, row: int) -> tuple[int, ...]:
        """Gives what the graph knows of a row's words."""
        return self.runtime.only_step.said(row)


class Steps:
    """One request, whose rows are the only ones."""

    def __init__(self, table: Table, **options: Any) -> None:
        self.options = made(**options)
        self.rows = Rig(self.options.rows)
        self.request = self.rows.join(range(self.options.rows), table, **options)
        self.taken = 0

    @property
    def said(self) -> set[tuple[int, ...]]:
        """What its rows have said."""
        return {self.rows.said(row) for row in self.rows.held}

    def step(self) -> list[Hypothesis]:
        """Gives the answer where it has come; there is one exactly when no row goes on."""
        finished = self.rows.step().finished
        self.rows.compact()
        self.taken += 1
        assert bool(finished) == (not self.rows.held)
        for request, answer in finished:
            assert request is self.request
            return answer.hypotheses
        return []

    def finish(self) -> list[Hypothesis]:
        """Steps to the end."""
        while not (answer := self.step()):
            pass
        return answer
