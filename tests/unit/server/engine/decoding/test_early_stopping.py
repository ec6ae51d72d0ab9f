import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from tests.unit.server.engine.decoding.table import (
    EOS,
    VOCABULARY_SIZE,
    A,
    B,
    C,
    D,
    E,
    Table,
    always,
    decode,
    logits_after,
    outputs_of,
)
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

NUM_TABLES, LONGEST = 24, 16


def uncertain_table(seed: int) -> Table:
    """Makes a table in which the end may come at any step, improbable or nearly sure."""

    @cache
    def table(output: tuple[int, ...]) -> dict[int, float]:
        logits = np.random.default_rng([seed, *output]).normal(0, 2 + seed % 3, VOCABULARY_SIZE)
        return dict(enumerate((np.exp(logits) / np.exp(logits).sum()).tolist()))

    return table


TABLES = [uncertain_table(seed) for seed in range(NUM_TABLES)]
RULES: dict[str, bool | str] = {"true": True, "false": False, "never": "never"}
SIZES, PENALTIES = (2, 4, 5), (-1.0, 0.0, 0.6, 1.0, 2.0)


class TableModel(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """Stands for a network: its target begins with a token that names a table."""

    config_class = PretrainedConfig

    def __init__(self, config: PretrainedConfig) -> None:
        super().__init__(config)
        # Tells transformers the device.
        self.nothing = torch.nn.Parameter(torch.zeros(1))

    def forward(self, input_ids: torch.Tensor, **_: Any) -> CausalLMOutput:
        logits = torch.full((len(input_ids), 1, VOCABULARY_SIZE + NUM_TABLES), -math.inf)
        for row, (name, *output) in enumerate(input_ids.tolist()):
            # What has ended goes on as padding, which is the end once more.
            found = logits_after(TABLES[name - VOCABULARY_SIZE], tuple(output))
            logits[row, 0, :VOCABULARY_SIZE] = torch.from_numpy(found)
        return CausalLMOutput(logits=logits)


class Found(NamedTuple):
    """The hypotheses of one table, best first."""

    outputs: list[list[int]]
    scores: list[float]


@cache
def generated(rule: str, size: int, penalty: float) -> list[Found]:
    """Lets transformers generate from all tables."""
    config = GenerationConfig(
        eos_token_id=EOS,
        pad_token_id=EOS,
        max_new_tokens=LONGEST,
        num_beams=size,
        num_return_sequences=size,
        early_stopping=RULES[rule],
        length_penalty=penalty,
        do_sample=False,
        use_cache=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    prompts = torch.arange(VOCABULARY_SIZE, VOCABULARY_SIZE + NUM_TABLES)[:, None]
    model = TableModel(PretrainedConfig(vocab_size=VOCABULARY_SIZE + NUM_TABLES))
    found = model.generate(prompts, config, attention_mask=torch.ones_like(prompts))
    outputs = [[token for token in row[1:] if token != EOS] for row in found.sequences.tolist()]
    scores = found.sequences_scores.tolist()
    starts = range(0, NUM_TABLES * size, size)
    return [Found(outputs[at : at + size], scores[at : at + size]) for at in starts]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("rule", RULES)
def test_hypotheses_are_those_of_generate(rule: str, size: int, penalty: float) -> None:
    pairs = zip(TABLES, generated(rule, size, penalty), strict=True)
    for index, (table, expected) in enumerate(pairs):
        count = (1, 2, size)[index % 3]
        found = decode(
            table,
            beam_size=size,
            num_hypotheses=count,
            max_decoding_length=LONGEST,
            length_penalty=penalty,
            early_stopping=rule,
        )
        assert [one.token_ids for one in found] == expected.outputs[:count]
        scores = [one.normalized_score for one in found]
        assert scores == pytest.approx(expected.scores[:count], rel=1e-5, abs=1e-5)


def share_that_differs(rule: str, other: str, size: int, penalty: float) -> float:
    pairs = zip(generated(rule, size, penalty), generated(other, size, penalty), strict=True)
    return sum(one.outputs != another.outputs for one, another in pairs) / NUM_TABLES


@pytest.mark.parametrize(
    ("penalty", "eager", "hopeful"),
    # Without a positive penalty a hypothesis is best at the length it has.
    [(-1.0, 0.04, 0), (0.0, 0.15, 0), (0.6, 0.3, 0.01), (1.0, 0.5, 0.1), (2.0, 0.7, 0.05)],
)
def test_rules_differ_on_these_tables(penalty: float, eager: float, hopeful: float) -> None:
    """Else the comparison proves nothing."""
    for size in SIZES:
        assert share_that_differs("true", "false", size, penalty) >= eager
    shares = [share_that_differs("false", "never", size, penalty) for size in SIZES]
    assert sum(shares) / len(SIZES) >= hopeful
    assert any(shares) == (penalty > 0)


@pytest.mark.parametrize("rule", RULES)
def test_no_hypothesis_goes_on_after_its_end(rule: str) -> None:
    """Four of four continuations end: none is left to take their place."""
    table = always({A: 0.3, B: 0.25, C: 0.2, D: 0.15, E: 0.1})
    options = {"beam_size": 2, "num_hypotheses": 2, "end_ids": (A, B, C, D), "patience": 2.0}
    assert outputs_of(decode(table, early_stopping=rule, **options)) == [[], []]
