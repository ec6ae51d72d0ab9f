"""Bulk calls to a real server: every outcome, and no leak when a client leaves."""

from __future__ import annotations

import itertools
from typing import Any

import grpc

from seqserve import Client, Result
from seqserve.errors import CallError, InvalidArgument
from seqserve.v1 import generation_pb2, generation_pb2_grpc

from .endless_model import MAX_TARGET, NAME
from .process import PATIENCE_S, ServerProcess, until

TEXT = "The old train waits for the garden. Nobody paints eleven books? Grüße 🙂"
ENDLESS: dict[str, Any] = {"min_decoding_length": MAX_TARGET}
SOURCES = 120
BAD = {7: "", 70: TEXT * 40}


def source_of(number: int) -> str:
    return BAD.get(number, TEXT[number % 7 : 1 + number % 7 + number % 60])


def test_in_one_call_as_alone(server: ServerProcess, client: Client) -> None:
    sources = map(source_of, range(SOURCES))
    outcomes: dict[int, Result | CallError] = {}
    for number, outcome in client.generate_bulk(sources, max_decoding_length=9):
        assert number not in outcomes
        outcomes[number] = outcome
    assert sorted(outcomes) == list(range(SOURCES))
    for number, outcome in outcomes.items():
        if number in BAD:
            assert isinstance(outcome, InvalidArgument) and outcome.field == "source"
        else:
            assert isinstance(outcome, Result)
            alone = client.generate(source_of(number), max_decoding_length=9)
            assert outcome.hypotheses == alone.hypotheses
    assert server.is_idle()


def test_client_that_leaves_early_frees_all(server: ServerProcess, client: Client) -> None:
    before = ended(server)
    # One source is answered; the others would run for long.
    bulk = client.generate_bulk(itertools.chain([""], itertools.repeat("Nobody")), **ENDLESS)
    number, outcome = next(bulk)
    assert number == 0 and isinstance(outcome, InvalidArgument)
    until(lambda: server.rows_in_use() == 16)
    bulk.close()
    until(server.is_idle)
    until(lambda: ended(server) == {**before, "CANCELLED": before["CANCELLED"] + 1})


def test_half_close_does_not_cancel(server: ServerProcess) -> None:
    before = ended(server)
    options = generation_pb2.GenerationOptions(min_decoding_length=300, max_decoding_length=300)
    request = generation_pb2.GenerateRequest(source="Nobody", options=options)
    with grpc.insecure_channel(server.target) as channel:
        stub = generation_pb2_grpc.GenerationServiceStub(channel)
        bulk = [generation_pb2.GenerateBulkRequest(id=id_, request=request) for id_ in range(20)]
        # The last request is sent long before the first answer arrives.
        ids = [response.id for response in stub.GenerateBulk(iter(bulk), timeout=PATIENCE_S)]
    assert sorted(ids) == list(range(20))
    assert ended(server) == {**before, "OK": before["OK"] + 1}


def ended(server: ServerProcess) -> dict[str, float]:
    method = "GenerationService.GenerateBulk"
    return {
        code: server.value("requests_total", method=method, code=code, model=NAME)
        for code in ("OK", "CANCELLED")
    }
