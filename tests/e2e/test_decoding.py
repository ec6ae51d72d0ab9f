"""Decoding options of the client, on a real server with the shipped model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seqserve import AsyncClient, Client, Result
from seqserve.errors import InvalidArgument

from .process import ServerProcess

MODELS = Path(__file__).parents[2] / "models"
SOURCE = "The old train waits in the garden."
LONGEST = 12


@pytest.fixture
def client(shipped: ServerProcess) -> Iterator[Client]:
    with Client(shipped.target) as client:
        yield client


def beam(**options: Any) -> dict[str, Any]:
    return {"beam_size": 4, "num_hypotheses": 4, "max_decoding_length": LONGEST} | options


def test_restricted_vocabulary_contains_every_generated_token(client: Client) -> None:
    free = client.generate(SOURCE, max_decoding_length=LONGEST)
    own = client.generate(SOURCE, max_decoding_length=LONGEST, vocabulary_allow=list(free.tokens))
    assert own.text == free.text
    allowed = list(free.tokens)[:2]
    for options in ({}, beam(num_hypotheses=2), {"top_k": 5, "seed": 1}):
        options = {"max_decoding_length": LONGEST} | options
        few = client.generate(SOURCE, vocabulary_allow=allowed, **options)
        for hypothesis in few.hypotheses:
            assert set(hypothesis.tokens) <= set(allowed)


def test_alternatives_begin_with_the_most_probable_tokens(client: Client) -> None:
    best = client.generate(SOURCE, max_decoding_length=LONGEST, return_top_tokens=3)
    first = best.hypotheses[0].top_tokens[0]
    found = client.generate(
        SOURCE, max_decoding_length=LONGEST, num_hypotheses=3, return_alternatives=True
    )
    # A hypothesis that ends at once has no token.
    begins = [hypothesis.tokens[0] for hypothesis in found.hypotheses if hypothesis.tokens]
    assert begins == [entry.token for entry in first if entry.token in begins]
    assert len(found.hypotheses) == 3


def test_terms_are_generated_or_reported(client: Client) -> None:
    terms = {"train": "Zug", "nowhere": "nirgends"}
    found = client.generate(SOURCE, **beam(terms=terms))
    for hypothesis in found.hypotheses:
        unmet = dict(hypothesis.unmet_terms)
        assert "nowhere" not in unmet, "it is not in the source"
        assert ("Zug" in hypothesis.text) == ("train" not in unmet)
    assert "Zug" in found.text


def test_stronger_prefix_bias_follows_the_prefix_further(client: Client) -> None:
    forced = client.generate(SOURCE, **beam(target_prefix="Ein Haus"))
    preferred = client.generate(SOURCE, **beam(target_prefix="Ein Haus", prefix_bias_beta=0.999))
    assert preferred.text.startswith("Ein Haus") and forced.text.startswith("Ein Haus")


def test_coverage_penalty_changes_the_ranking(client: Client) -> None:
    plain = client.generate(SOURCE, **beam())
    covered = client.generate(SOURCE, **beam(coverage_penalty=2.0))
    ranks = [hypothesis.normalized_score for hypothesis in covered.hypotheses]
    assert ranks == sorted(ranks, reverse=True)
    scores = {hypothesis.tokens: hypothesis.normalized_score for hypothesis in plain.hypotheses}
    both = [hypothesis for hypothesis in covered.hypotheses if hypothesis.tokens in scores]
    assert all(hypothesis.normalized_score < scores[hypothesis.tokens] for hypothesis in both)


WAYS: list[dict[str, Any]] = [
    {},
    beam(),
    beam(terms={"train": "Zug"}),
    {"terms": {"train": "Eisenbahn"}, "max_decoding_length": LONGEST},
    beam(coverage_penalty=1.0),
    beam(target_prefix="Ein", prefix_bias_beta=0.5),
    {"num_hypotheses": 3, "return_alternatives": True, "max_decoding_length": LONGEST},
    {"top_k": 5, "seed": 7, "num_hypotheses": 2, "max_decoding_length": LONGEST},
    {"top_p": 0.9, "seed": 8, "repetition_penalty": 1.2, "max_decoding_length": LONGEST},
    {"no_repeat_ngram_size": 2, "min_decoding_length": 5, "max_decoding_length": LONGEST},
    {"segmentation": "sentences", "max_decoding_length": LONGEST},
    {"stop_sequences": ["e"], "return_token_scores": True, "max_decoding_length": LONGEST},
]


def test_every_option_in_a_batch_as_alone(shipped: ServerProcess, client: Client) -> None:
    alone = [client.generate(SOURCE, **options) for options in WAYS]

    async def together() -> list[Result]:
        async with AsyncClient(shipped.target) as calling:
            calls = (calling.generate(SOURCE, **options) for options in WAYS * 4)
            return await asyncio.gather(*calls)

    for number, result in enumerate(asyncio.run(together())):
        expected = alone[number % len(WAYS)]
        assert (result.hypotheses, result.segments) == (expected.hypotheses, expected.segments)
    assert shipped.is_idle()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"beam_size": 0}, "options.beam_size"),
        ({"beam_size": 2, "num_hypotheses": 3}, "options.num_hypotheses"),
        ({"terms": {"train": "Zug"}, "top_k": 5}, "options.terms"),
        ({"glossary": "none"}, "options.glossary"),
        ({"coverage_penalty": 1.0}, "options.coverage_penalty"),
        (beam(prefix_bias_beta=0.5), "options.prefix_bias_beta"),
        ({"vocabulary_allow": ["no such token"]}, "options.vocabulary_allow"),
    ],
)
def test_contradictions_are_refused(client: Client, options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        client.generate(SOURCE, **options)
    assert caught.value.field == field
