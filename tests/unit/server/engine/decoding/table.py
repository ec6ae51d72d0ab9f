"""Search over a model whose probabilities a test writes down as a table.

:class:`TableRuntime` stands for ONNX Runtime: its step reads each row's tokens out of the cache,
looks up what the row's table gives after them, and writes the outputs that the step was asked for.
Cache and search around it are real. :class:`Rig` runs rows of many requests step by step, as a
worker would; :class:`SingleRequest` and :func:`decode` run one request alone.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.unit.server.engine.fake_runtime import FakeRuntime, make_manifest, write_allowed_logits
from tests.unit.server.engine.requests import generation

from seqserve_server.artifact.manifest import Architecture, Limits, SpecialTokens
from seqserve_server.contract.events import Finished, Hypothesis
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.engine.cache import SlotCache
from seqserve_server.engine.decoding.search import Advance, Search
from seqserve_server.engine.request import Request
from seqserve_server.engine.step import MASKED_LOGIT, StepSizes

Array = NDArray[Any]

EOS, VOCABULARY_SIZE, BOS = 0, 8, 9
A, B, C, D, E, F, G = range(1, VOCABULARY_SIZE)
"""Tokens of the tables."""
MIN_PROBABILITY = 1e-9
"""Probability of a token that a table leaves out; the sum is then a little above 1."""

MANIFEST = make_manifest(
    architecture=Architecture(
        encoder_layers=1,
        decoder_layers=1,
        heads=1,
        head_size=1,
        vocabulary_size=VOCABULARY_SIZE,
        config={},
    ),
    limits=Limits(max_source_length=2, max_target_length=300),
    tokens=SpecialTokens(pad=BOS, bos=BOS, eos=EOS, unk=BOS),
)

Table = Callable[[tuple[int, ...]], Mapping[int, float]]
"""Gives the probabilities of the tokens that may come after some."""


def always(probabilities: Mapping[int, float]) -> Table:
    """Makes a table that gives the same probabilities at every step."""
    return lambda output: probabilities


def after(tree: Mapping[tuple[int, ...], Mapping[int, float]]) -> Table:
    """Makes a table of some outputs; all others end at once."""
    return lambda output: tree.get(output, {EOS: 1.0})


FORK = after(
    {
        (): {A: 0.5, B: 0.3, C: 0.15, EOS: 0.05},
        (A,): {A: 0.6, B: 0.4},
        (A, A): {EOS: 0.4, A: 0.3, C: 0.3},
        (A, B): {EOS: 0.9, C: 0.1},
        (B,): {EOS: 0.5, D: 0.5},
        (B, D): {EOS: 0.9, A: 0.1},
        (C,): {EOS: 0.9, D: 0.1},
    }
)
"""Three first tokens, each of which goes on in its own way."""


def random_table(seed: int) -> Table:
    """Makes a table of random probabilities, different after each output."""

    @cache
    def table(output: tuple[int, ...]) -> Mapping[int, float]:
        random = np.random.default_rng([seed, *output])
        return dict(enumerate((random.dirichlet(np.full(VOCABULARY_SIZE, 0.5)) + 1e-6).tolist()))

    return table


def text_of(token_ids: Sequence[int]) -> str:
    """Detokenizes: token A is ``a``, token B is ``bb``, token C is ``ccc``."""
    return "".join("_abcdefg"[token] * token for token in token_ids)


def log(*probabilities: float) -> Any:
    """Gives the logarithm of their product, as near as single precision comes."""
    return pytest.approx(math.log(math.prod(probabilities)), abs=1e-6)


def logits_after(table: Table, output: tuple[int, ...], suppressed: Iterable[int] = ()) -> Array:
    """Gives the logits of a graph that computes the table."""
    logits = np.full(VOCABULARY_SIZE, math.log(MIN_PROBABILITY), np.float32)
    for token, probability in table(output).items():
        logits[token] = math.log(probability)
    logits[list(suppressed)] += MASKED_LOGIT
    return logits


class TableStep:
    """Stands for the decoder graph; outputs that the step was not asked for are NaN."""

    def __init__(self, tables: list[Table], inputs: dict[str, Array], outputs: dict[str, Array]):
        self._tables, self._inputs, self._outputs = tables, inputs, outputs

    def output(self, row: int) -> tuple[int, ...]:
        """Gives a row's tokens so far: those in the cache, and the one that it reads next."""
        inputs = self._inputs
        read = inputs["self_value_0"][row, 0, 1 : inputs["lengths"][row], 0]
        return (*read.astype(int).tolist(), int(inputs["tokens"][row, 0]))

    def run(self, rows: int, sizes: StepSizes) -> None:
        for name in ("log_probabilities", "top_log_probabilities"):
            self._outputs[name][:] = np.nan
        for name in ("logits", "allowed_logits"):
            # The last one is no step's.
            self._outputs[name][:-1] = np.nan
        unmasked = np.array([self._step(row, sizes) for row in range(rows)])
        write_allowed_logits(unmasked, sizes, self._inputs, self._outputs)

    def _step(self, row: int, sizes: StepSizes) -> Array:
        """Runs a row; gives its logits before any mask."""
        inputs, outputs = self._inputs, self._outputs
        length = int(inputs["lengths"][row])
        inputs["self_value_0"][row, 0, length, 0] = inputs["tokens"][row, 0]
        output = tuple(inputs["self_value_0"][row, 0, 1 : length + 1, 0].astype(int).tolist())
        table = self._tables[int(inputs["cross_value_0"][row, 0, 0, 0])]
        mine = slice(row * sizes.biases, (row + 1) * sizes.biases)
        suppressed = inputs["bias_tokens"][mine][inputs["bias_values"][mine] < 0]
        logits = logits_after(table, output, set(suppressed.tolist()))
        unmasked = logits_after(table, output)
        if not sizes.projects:
            return unmasked
        found = logits - np.logaddexp.reduce(logits)
        order = np.argsort(-found, kind="stable")
        outputs["next_tokens"][row, 0] = order[0]
        if inputs["return_logprobs"]:
            outputs["log_probabilities"][row] = found[order[0]]
        mine = slice(row * sizes.top_k, (row + 1) * sizes.top_k)
        outputs["top_tokens"][mine] = order[: sizes.top_k]
        outputs["top_log_probabilities"][mine] = found[order[: sizes.top_k]]
        outputs["logits"][row * sizes.logits : (row + 1) * sizes.logits] = logits[: sizes.logits]
        return unmasked


class TableRuntime(FakeRuntime):
    """Stands for a loaded model; the first token of a source is the index of its table."""

    def __init__(self) -> None:
        super().__init__(MANIFEST)
        self.tables: list[Table] = []

    def step(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Any:
        self.only_step = TableStep(self.tables, inputs, outputs)
        return self.only_step


def make_options(**options: Any) -> DecodingOptions:
    """Makes options for targets of at most 9 tokens."""
    return DecodingOptions(**{"max_decoding_length": 9} | options)


def make_sampling(
    seed: int = 7,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Sampling:
    """Makes options of sampling that leave the probabilities as they are."""
    return Sampling(temperature, top_k, top_p, min_p, seed)


def make_request(source: list[int], options: DecodingOptions) -> Request:
    """Makes a request to generate."""
    return generation(source, options)


class Rig:
    """Stands for a worker: rows of requests join, step, move and leave as a test calls for it."""

    def __init__(self, slots: int = 12) -> None:
        self.runtime = TableRuntime()
        self.cache = SlotCache(self.runtime, slots)
        self.search = Search(self.cache, MANIFEST, text_of)
        self.running: dict[int, Request] = {}
        """The request of each row."""

    def join(self, rows: Iterable[int], table: Table, **options: Any) -> Request:
        self.runtime.tables.append(table)
        source = [len(self.runtime.tables) - 1, EOS]
        request = make_request(source, make_options(**options))
        cross_kv, rows = self.runtime.encode([source]), list(rows)
        for row in rows:
            self.cache.join(row, cross_kv, 0)
        self.search.join(rows, request)
        self.running.update(dict.fromkeys(rows, request))
        return request

    def step(self) -> Advance:
        """Steps over all rows; those that are done leave."""
        count = max(self.running) + 1
        self.cache.advance(count)
        advance = self.search.advance(count)
        self.leave(*advance.rows)
        return advance

    def leave(self, *rows: int) -> None:
        for row in rows:
            self.search.leave(row)
            del self.running[row]

    def move(self, source: int, target: int) -> None:
        self.search.move(source, target)
        self.running[target] = self.running.pop(source)

    def compact(self) -> None:
        """Moves the last rows into the free slots between rows, the highest slot first."""
        free = set(range(max(self.running, default=0))) - set(self.running)
        for slot in sorted(free, reverse=True):
            self.move(max(self.running), slot)

    def finish(self) -> list[tuple[Request, Finished]]:
        """Steps until every request is answered; gives the answers."""
        found: list[tuple[Request, Finished]] = []
        while self.running:
            found += self.step().finished
            self.compact()
        return found

    def output(self, row: int) -> tuple[int, ...]:
        """Gives a row's tokens so far, as the graph reads them."""
        return self.runtime.only_step.output(row)


class SingleRequest:
    """One request in a rig of its own."""

    def __init__(self, table: Table, **options: Any) -> None:
        self.options = make_options(**options)
        self.rig = Rig(self.options.rows)
        self.request = self.rig.join(range(self.options.rows), table, **options)
        self.num_steps = 0

    @property
    def outputs(self) -> set[tuple[int, ...]]:
        """The tokens so far of each row."""
        return {self.rig.output(row) for row in self.rig.running}

    def step(self) -> list[Hypothesis]:
        """Runs one step; gives the hypotheses with the last one, nothing before."""
        finished = self.rig.step().finished
        self.rig.compact()
        self.num_steps += 1
        assert bool(finished) == (not self.rig.running)
        for request, answer in finished:
            assert request is self.request
            return answer.hypotheses
        return []

    def finish(self) -> list[Hypothesis]:
        """Steps to the end; gives the hypotheses."""
        while not (answer := self.step()):
            pass
        return answer


def decode(table: Table, **options: Any) -> list[Hypothesis]:
    """Decodes one request alone; gives its hypotheses."""
    return SingleRequest(table, **options).finish()


def outputs_of(hypotheses: Iterable[Hypothesis]) -> list[list[int]]:
    return [hypothesis.token_ids for hypothesis in hypotheses]


def pairs_of(hypothesis: Hypothesis) -> list[list[tuple[int, float]]]:
    """Gives the top tokens of each step with their log-probabilities."""
    return [[*zip(*step, strict=True)] for step in hypothesis.top_tokens]


def top_tokens_of(hypothesis: Hypothesis) -> list[list[int]]:
    """Gives the top tokens of each step, without their log-probabilities."""
    return [list(step.token_ids) for step in hypothesis.top_tokens]
