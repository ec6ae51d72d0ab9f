"""Answers of a real server: alone and in a batch, as a stream, in a bulk call, cut short."""

import asyncio
from typing import Any

from tests.resources import Resources, until_released
from tests.support.endless_model import MAX_SOURCE, MAX_TARGET
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve import AsyncClient, CallError, Client, InvalidArgument, Result
from seqserve.results import StopReason

CALLS = 200
SOURCE = "The old train waits in the garden."
LONGEST = 12
TEXT = "The old train waits for the garden. Nobody paints eleven books? Grüße 🙂 from my neighbour!"
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET, "timeout_s": PATIENCE_S}


def source_of(number: int) -> str:
    """Sources of all lengths, with different beginnings."""
    start = number % 7
    return TEXT[start : start + 1 + number * (len(TEXT) - 7) // CALLS]


def longest_of(number: int) -> int:
    return 1 + number * 7 % 40


def test_in_a_batch_as_alone(server: ServerProcess, client: Client) -> None:
    alone = [
        client.generate(source_of(number), max_decoding_length=longest_of(number))
        for number in range(CALLS)
    ]
    lengths = {result.source_tokens for result in alone}
    assert min(lengths) <= 2
    assert max(lengths) > MAX_SOURCE // 2
    assert {result.stop_reason for result in alone} == {StopReason.EOS, StopReason.LENGTH}

    steps, tokens = steps_and_tokens(server)
    together = asyncio.run(all_at_once(server.target))
    for before, after in zip(alone, together, strict=True):
        # Text, tokens, stop reason, and the score to its last bit.
        assert after.hypotheses == before.hypotheses
    steps_after, tokens_after = steps_and_tokens(server)
    assert tokens_after - tokens > steps_after - steps, "no step had more than one row"
    until(server.is_idle)


async def all_at_once(target: str) -> list[Result]:
    async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
        calls = (
            client.generate(source_of(number), max_decoding_length=longest_of(number))
            for number in range(CALLS)
        )
        return await asyncio.gather(*calls)


def steps_and_tokens(server: ServerProcess) -> tuple[float, float]:
    return server.value("batch_rows_count"), server.value("batch_rows_sum")


def test_calls_leave_nothing_behind(server: ServerProcess, client: Client) -> None:
    def use() -> None:
        for number in range(20):
            client.generate(source_of(number), max_decoding_length=3)
            pieces = client.stream(TEXT[:20], **ENDLESS)
            next(pieces)
            pieces.close()
        until(server.is_idle)

    # Pools of threads are started.
    use()
    before = Resources.of(server)
    use()
    # There were more calls than threads that may be added.
    until_released(server, before)


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


def test_every_option_in_a_batch_as_alone(shipped: ServerProcess, translator: Client) -> None:
    alone = [translator.generate(SOURCE, **options) for options in WAYS]

    async def together() -> list[Result]:
        async with AsyncClient(shipped.target) as calling:
            calls = (calling.generate(SOURCE, **options) for options in WAYS * 4)
            return await asyncio.gather(*calls)

    for number, result in enumerate(asyncio.run(together())):
        expected = alone[number % len(WAYS)]
        assert (result.hypotheses, result.segments) == (expected.hypotheses, expected.segments)
    until(shipped.is_idle)


BULK = 120
BAD = {7: "", 70: TEXT * 40}
"""Sources of the bulk call that fail, by their number."""


def bulk_source_of(number: int) -> str:
    return BAD.get(number, TEXT[number % 7 : 1 + number % 7 + number % 60])


def test_in_one_bulk_call_as_alone(server: ServerProcess, client: Client) -> None:
    sources = map(bulk_source_of, range(BULK))
    outcomes: dict[int, Result | CallError] = {}
    for number, outcome in client.generate_bulk(sources, max_decoding_length=9):
        assert number not in outcomes
        outcomes[number] = outcome
    assert sorted(outcomes) == list(range(BULK))
    for number, outcome in outcomes.items():
        if number in BAD:
            assert isinstance(outcome, InvalidArgument) and outcome.field == "source"
        else:
            assert isinstance(outcome, Result)
            alone = client.generate(bulk_source_of(number), max_decoding_length=9)
            assert outcome.hypotheses == alone.hypotheses
    until(server.is_idle)
