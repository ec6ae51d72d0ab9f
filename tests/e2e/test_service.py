"""Answers of a real server: alone and in a batch, as a stream, in a bulk call, cut short."""

import asyncio
import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import grpc
import pytest
from tests.resources import Resources, until_released
from tests.support.endless_model import MAX_SOURCE, MAX_TARGET, NAME
from tests.support.process import PATIENCE_S, ServerProcess, until

from seqserve import AsyncClient, CallError, Client, InvalidArgument, Result
from seqserve.errors import DeadlineExceeded
from seqserve.results import StopReason
from seqserve.v1 import generation_pb2, generation_pb2_grpc

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
    assert server.is_idle()


async def all_at_once(target: str) -> list[Result]:
    async with AsyncClient(target, timeout_s=PATIENCE_S) as client:
        calls = (
            client.generate(source_of(number), max_decoding_length=longest_of(number))
            for number in range(CALLS)
        )
        return await asyncio.gather(*calls)


def steps_and_tokens(server: ServerProcess) -> tuple[float, float]:
    return server.value("batch_rows_count"), server.value("batch_rows_sum")


def test_client_that_leaves_frees_the_slot(server: ServerProcess, client: Client) -> None:
    before = counts(server)
    pieces = client.stream(TEXT[:20], **ENDLESS)
    next(pieces)
    assert server.rows_in_use() == 1
    pieces.close()
    until(server.is_idle)
    until(lambda: counts(server) != before)
    assert changes(server, before) == {"cancelled": 1, "CANCELLED": 1}


# Time enough to begin on a slow machine. gRPC rounds the second timeout up by 4 ms, so the client's
# clock runs out first.
@pytest.mark.parametrize("timeout_s", [1.0, 1.0061])
def test_deadline_in_decode_frees_the_slot(
    server: ServerProcess, client: Client, timeout_s: float
) -> None:
    before = counts(server)
    with pytest.raises(DeadlineExceeded):
        client.generate(TEXT[:20], **ENDLESS | {"timeout_s": timeout_s})
    until(server.is_idle)
    until(lambda: changes(server, before) == {"decode": 1, "DEADLINE_EXCEEDED": 1})


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


def counts(server: ServerProcess) -> dict[str, float]:
    codes = ("CANCELLED", "DEADLINE_EXCEEDED")
    return {
        "cancelled": server.value("cancelled_total"),
        "queue": server.value("deadline_exceeded_total", where="queue"),
        "decode": server.value("deadline_exceeded_total", where="decode"),
        **{code: server.value("requests_total", code=code, model=NAME) for code in codes},
    }


def changes(server: ServerProcess, before: dict[str, float]) -> dict[str, float]:
    after = counts(server)
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def test_leaving_an_unread_stream_cancels_the_call(server: ServerProcess) -> None:
    before = server.calls_by_code()
    options = generation_pb2.GenerationOptions(min_decoding_length=3000, max_decoding_length=3000)
    # So small a window that the server has to wait for the client.
    narrow = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 14)]
    with grpc.insecure_channel(server.target, narrow) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        request = generation_pb2.GenerateRequest(source="Nobody", options=options)
        call = stub.GenerateStream(request)
        next(call)
        until(server.is_idle)
        call.cancel()
    until(lambda: server.calls_by_code() - before == {"CANCELLED": 1})


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
    assert shipped.is_idle()


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
    assert server.is_idle()


def test_a_bulk_client_of_before_has_one_outcome_a_message(
    server: ServerProcess, client: Client
) -> None:
    short = generation_pb2.GenerationOptions(max_decoding_length=9)
    requests = [
        generation_pb2.GenerateBulkRequest(
            id=number,
            request=generation_pb2.GenerateRequest(source=bulk_source_of(number), options=short),
        )
        for number in range(BULK)
    ]
    with grpc.insecure_channel(server.target) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        responses = list(stub.GenerateBulk(iter(requests), timeout=PATIENCE_S))
    assert sorted(each.id for each in responses) == list(range(BULK))
    assert not any(each.more or each.max_requests for each in responses)
    now = dict(client.generate_bulk(map(bulk_source_of, range(BULK)), max_decoding_length=9))
    for each in responses:
        outcome = now[each.id]
        if isinstance(outcome, Result):
            assert [one.text for one in outcome.hypotheses] == [
                one.text for one in each.outcome.response.hypotheses
            ]
        else:
            assert each.outcome.failure.field == getattr(outcome, "field", None)


class OlderServer(generation_pb2_grpc.GenerationServiceServicer):
    """Knows of one request in a message alone; another server answers it."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._server = grpc.server(ThreadPoolExecutor(2))
        generation_pb2_grpc.add_GenerationServiceServicer_to_server(self, self._server)
        self.target = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def GenerateBulk(self, requests: Any, context: Any) -> Any:
        known = (
            generation_pb2.GenerateBulkRequest(id=each.id, request=each.request)
            for each in requests
        )
        return generation_pb2_grpc.GenerationServiceStub(self._channel).GenerateBulk(known)

    def close(self) -> None:
        self._server.stop(None).wait()
        self._channel.close()


def test_a_server_of_before_is_sent_one_request_a_message(
    server: ServerProcess, client: Client
) -> None:
    sources = [bulk_source_of(number) for number in range(BULK)]
    with closing(OlderServer(server.target)) as older, Client(older.target) as its_client:
        found = dict(its_client.generate_bulk(sources, max_decoding_length=9))
    now = dict(client.generate_bulk(sources, max_decoding_length=9))
    assert found.keys() == now.keys()
    for number, outcome in now.items():
        before = found[number]
        if isinstance(outcome, Result):
            assert isinstance(before, Result) and before.hypotheses == outcome.hypotheses
        else:
            assert str(before) == str(outcome)
    assert server.is_idle()


def test_bulk_client_that_leaves_early_frees_all(server: ServerProcess, client: Client) -> None:
    before = server.calls_by_code()
    # One source is answered; the others would run for long.
    bulk = client.generate_bulk(itertools.chain([""], itertools.repeat("Nobody")), **ENDLESS)
    number, outcome = next(bulk)
    assert number == 0 and isinstance(outcome, InvalidArgument)
    until(lambda: server.rows_in_use() == 16)
    bulk.close()
    until(server.is_idle)
    until(lambda: server.calls_by_code() - before == {"CANCELLED": 1})
