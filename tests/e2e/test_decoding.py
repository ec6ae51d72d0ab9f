"""Decoding options of the client, on a real server with the shipped model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from seqserve import AsyncClient, Client, Result

from .process import ServerProcess

SOURCE = "The old train waits in the garden."
LONGEST = 12


@pytest.fixture
def client(shipped: ServerProcess) -> Iterator[Client]:
    with Client(shipped.target) as client:
        yield client


def beam(**options: Any) -> dict[str, Any]:
    return {"beam_size": 4, "num_hypotheses": 4, "max_decoding_length": LONGEST} | options


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
