import asyncio
import threading
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import batch, invalid, request
from tests.unit.server.front.echo import MAX_TARGET, TOKEN_SCORE, byte_tokenizer
from tests.unit.server.front.service import Service

from seqserve.v1 import generation_pb2
from seqserve_server.contract.events import Finished, Hypothesis, StopReason, Timeline
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.text.tokenizer import Tokenizer

TEXT = "Grüße aus Köln 🙂"


async def test_answer(service: Service) -> None:
    answer = await service.generate(TEXT)
    (hypothesis,) = answer.hypotheses
    tokens = len(TEXT.encode())
    assert (answer.model, answer.version) == ("echo", 2)
    assert hypothesis.text == TEXT
    assert len(hypothesis.tokens) == len(hypothesis.token_ids) == tokens
    assert (answer.source_tokens, answer.generated_tokens) == (tokens + 1, tokens)
    assert hypothesis.stop_reason == generation_pb2.STOP_REASON_EOS
    assert hypothesis.score == pytest.approx(TOKEN_SCORE * (tokens + 1))


async def test_timings_add_up(service: Service) -> None:
    service.runtime.step_s = 0.001
    timings = (await service.generate("abcdef")).timings
    assert min(timings.queue_ms, timings.encode_ms, timings.decode_ms) > 0
    assert timings.queue_ms + timings.encode_ms < timings.first_token_ms < timings.total_ms
    parts_ms = timings.queue_ms + timings.encode_ms + timings.decode_ms
    assert parts_ms <= timings.total_ms


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("a", {}),
        ("abc def", {}),
        (TEXT, {}),
        ("🙂" * 10, {}),
        ("x" * MAX_TARGET, {}),
        # It ends within a character.
        ("a🙂", {"max_decoding_length": 3}),
        # Tokens may be told of before it is known that they are cut off.
        ("abcdefgh", {"stop_sequences": ["cdef"]}),
        ("abcdefgh", {"stop_sequences": ["abc"]}),
        ("abcdefgh", {"stop_sequences": ["xyz"]}),
        (TEXT, {"stop_sequences": [" 🙂"]}),
        (TEXT, {"stop_sequences": ["üß"]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("step_s", [0.0, 0.002])
async def test_pieces_join_to_the_result(
    service: Service, text: str, options: dict[str, Any], step_s: float
) -> None:
    service.runtime.step_s = step_s
    call = service.generation.GenerateStream(request(text, **options))
    *pieces, last = [message async for message in call]
    assert {message.WhichOneof("event") for message in pieces} <= {"piece"}
    [hypothesis] = last.result.hypotheses
    assert "".join(message.piece.text for message in pieces) == hypothesis.text
    ids = [id_ for message in pieces for id_ in message.piece.token_ids]
    assert ids == list(hypothesis.token_ids)
    if "max_decoding_length" in options:
        assert len(ids) == 3 and hypothesis.text.startswith("a")
    else:
        [stop] = options.get("stop_sequences", ["\n"])
        assert hypothesis.text == text.partition(stop)[0]


async def test_pieces_come_while_the_rest_is_decoded(service: Service) -> None:
    service.runtime.hold_after(2)
    call = service.generation.GenerateStream(request("abcdefgh"))
    first = await call.read()
    assert first.piece.text
    assert service.engine.slots_in_use == 1
    call.cancel()


async def test_character_in_parts_is_shown_when_it_is_whole(service: Service) -> None:
    service.runtime.step_s = 0.005
    pieces = [
        message.piece
        async for message in service.generation.GenerateStream(request("a🙂b"))
        if message.WhichOneof("event") == "piece"
    ]
    smiley = next(piece for piece in pieces if "🙂" in piece.text)
    assert len(smiley.token_ids) >= 4
    assert not any("\N{REPLACEMENT CHARACTER}" in piece.text for piece in pieces)


async def test_slow_reader_does_not_hold_the_engine(service: Service) -> None:
    text = "abcdefghijkl" * 3
    call = service.generation.GenerateStream(request(text))
    await call.read()
    # gRPC buffers a few messages on its own; what matters is that the engine does not wait.
    await service.until_value(1, "stop_total", model="echo", reason="eos")
    assert service.engine.slots_in_use == 0
    call.cancel()


@pytest.mark.parametrize(("characters", "is_inline"), [(1024, True), (1025, False)])
async def test_long_text_is_tokenised_off_the_loop(
    service: Service, monkeypatch: pytest.MonkeyPatch, characters: int, is_inline: bool
) -> None:
    threads = []

    def encode(tokenizer: Tokenizer, text: str) -> list[int]:
        threads.append(threading.current_thread())
        return [5, 2]

    monkeypatch.setattr(Tokenizer, "encode", encode)
    await service.generate("a" * characters)
    assert (threads == [threading.current_thread()]) is is_inline


async def test_batch_gives_what_each_source_gets_alone(service: Service) -> None:
    # More than there are slots, and one that would not fit the queue.
    sources = [f"{TEXT} {number}" for number in range(30)]
    answer = await service.generation.GenerateBatch(batch(*sources, max_decoding_length=20))
    assert len(answer.outcomes) == len(sources)
    for source, outcome in zip(sources, answer.outcomes, strict=True):
        alone = await service.generate(source, max_decoding_length=20)
        assert list(outcome.response.hypotheses) == list(alone.hypotheses)
    assert service.engine.slots_in_use == 0


async def test_each_source_of_a_batch_has_its_own_failure(service: Service) -> None:
    answer = await service.generation.GenerateBatch(batch("good", "", "x" * 100, "also good"))
    kinds = [outcome.WhichOneof("outcome") for outcome in answer.outcomes]
    assert kinds == ["response", "failure", "failure", "response"]
    for outcome in answer.outcomes[1:3]:
        assert outcome.failure.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert outcome.failure.field == "source" and outcome.failure.message


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (batch(), "sources"),
        (batch(*["a"] * 1025), "sources"),
        (batch("a", beam_size=0), "options.beam_size"),
    ],
)
async def test_batch_that_is_wrong_as_a_whole(service: Service, asked: Any, field: str) -> None:
    assert (await invalid(service.generation.GenerateBatch(asked)))[0] == field


TEA = generation_pb2.Term(source="tea", target="Tee")
CAKE = generation_pb2.Term(source="cake", target="Kuchen")


async def test_each_source_of_a_batch_has_its_own_terms(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied: list[list[str]] = []

    def submit(spec: GenerateSpec, receive: Receive) -> int:
        """Meets no term but the first."""
        applied.append([byte_tokenizer().decode(words) for words in spec.options.terms])
        unmet = range(1, len(spec.options.terms))
        answer = Finished([Hypothesis([5], -1.0, StopReason.EOS, unmet_terms=unmet)])
        asyncio.get_running_loop().call_soon(receive, answer, Timeline())
        return len(applied)

    monkeypatch.setattr(service.remote, "submit", submit)
    sources = ["cake", "nothing", "tea and cake", "tea"]
    answer = await service.generation.GenerateBatch(batch(*sources, beam_size=2, terms=[TEA, CAKE]))
    # The longest source goes first.
    assert applied == [["Tee", "Kuchen"], [], ["Kuchen"], ["Tee"]]
    hypotheses = [outcome.response.hypotheses[0] for outcome in answer.outcomes]
    assert [list(each.unmet_terms) for each in hypotheses] == [[], [], [CAKE], []]


async def test_each_connection_and_each_batch_is_a_flow(service: Service, specs: Any) -> None:
    for _ in range(2):
        await service.generate("a")
    await service.generation.GenerateBatch(batch("b", "c"))
    await service.generation.GenerateBatch(batch("d"))
    first, second, *sources = specs
    assert first.flow_id == second.flow_id and not first.is_bulk
    assert [spec.is_bulk for spec in sources] == [True] * 3
    assert sources[0].flow_id == sources[1].flow_id
    assert len({spec.flow_id for spec in specs}) == 3
    assert len({spec.client_id for spec in specs}) == 1
