import asyncio
from typing import Any

import grpc
import pytest
from tests.unit.server.front.calls import batch, failure, invalid, request
from tests.unit.server.front.echo import TOKEN_SCORE
from tests.unit.server.front.service import Service, serving, stepwise, until

from seqserve.v1 import generation_pb2 as pb
from seqserve_server.contract.events import Event, Finished, Timeline
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.engine import Receive
from seqserve_server.front.engine_client.group import EngineGroup

TEXT = "  Good day. How are you?\r\n\r\n\tI paid 3.50 €. 🙂 Bye!\n"
SENTENCES = ["Good day.", "How are you?", "I paid 3.50 €.", "🙂 Bye!"]


def sources_of(text: str, answer: Any) -> list[str]:
    return [text[segment.source_begin : segment.source_end] for segment in answer.segments]


def targets_of(answer: Any) -> list[str]:
    text = answer.hypotheses[0].text
    return [text[segment.target_begin : segment.target_end] for segment in answer.segments]


async def test_each_sentence_is_answered_and_white_space_comes_back(service: Service) -> None:
    answer = await service.generate(TEXT, segmentation="sentences")
    assert [each.text for each in answer.hypotheses] == [TEXT]
    assert sources_of(TEXT, answer) == targets_of(answer) == SENTENCES
    assert [segment.hypotheses[0].text for segment in answer.segments] == SENTENCES
    assert (answer.model, answer.version) == ("echo", 2)


async def test_a_segment_is_answered_as_alone(service: Service) -> None:
    options: dict[str, Any] = {"return_token_scores": True, "return_top_tokens": 2}
    options |= {"beam_size": 2, "num_hypotheses": 2}
    answer = await service.generate(TEXT, segmentation="sentences", **options)
    for source, segment in zip(SENTENCES, answer.segments, strict=True):
        alone = await service.generate(source, **options)
        assert list(segment.hypotheses) == list(alone.hypotheses)
        assert segment.source_tokens == alone.source_tokens


async def test_the_joined_answer_sums_up_its_segments(service: Service) -> None:
    answer = await service.generate(TEXT, segmentation="sentences")
    [joined] = answer.hypotheses
    tokens = sum(len(sentence.encode()) for sentence in SENTENCES)
    assert (answer.source_tokens, answer.generated_tokens) == (tokens + 4, tokens)
    assert joined.score == pytest.approx(TOKEN_SCORE * (tokens + 4))
    assert joined.normalized_score == pytest.approx(TOKEN_SCORE)
    assert joined.stop_reason == pb.STOP_REASON_EOS
    assert not joined.tokens and not joined.token_ids
    assert 0 < answer.timings.encode_ms < answer.timings.total_ms


async def test_the_joined_answer_has_the_mean_confidence_and_all_warnings(service: Service) -> None:
    text = "One two three. <b>Tags</b>! <i>Again</i>. Привет."
    answer = await service.generate(text, segmentation="sentences")
    markup, script = pb.SOURCE_WARNING_MARKUP, pb.SOURCE_WARNING_OTHER_SCRIPT
    warned = [list(segment.source_warnings) for segment in answer.segments]
    assert warned == [[], [markup], [markup], [script]]
    assert list(answer.source_warnings) == [markup, script]
    best = [segment.hypotheses[0] for segment in answer.segments]
    weights = [len(each.token_ids) + 1 for each in best]
    mean = sum(each.confidence * n for each, n in zip(best, weights, strict=True)) / sum(weights)
    assert answer.hypotheses[0].confidence == pytest.approx(mean)


async def test_without_scores_there_is_no_joined_score(service: Service) -> None:
    answer = await service.generate("One. Two.", segmentation="lines", return_scores=False)
    [joined] = answer.hypotheses
    assert not joined.HasField("score") and not joined.HasField("confidence")


async def test_a_segment_that_is_cut_is_told_of(service: Service) -> None:
    text = "Short. A long one."
    answer = await service.generate(text, segmentation="sentences", max_decoding_length=8)
    assert answer.hypotheses[0].text == "Short. A long o"
    assert answer.hypotheses[0].stop_reason == pb.STOP_REASON_LENGTH
    reasons = [segment.hypotheses[0].stop_reason for segment in answer.segments]
    assert reasons == [pb.STOP_REASON_EOS, pb.STOP_REASON_LENGTH]


async def test_a_long_sentence_is_wrapped_and_told_of(service: Service) -> None:
    text = "Yes. This sentence is far too long, as the model reads no more than 64 bytes at once."
    answer = await service.generate(text, segmentation="sentences")
    assert sources_of(text, answer) == [
        "Yes.",
        "This sentence is far too long, as the model reads no more than",
        "64 bytes at once.",
    ]
    assert [segment.is_wrapped for segment in answer.segments] == [False, True, True]


async def test_pieces_come_in_order_as_they_are_final(service: Service) -> None:
    asked = request(TEXT, segmentation="sentences")
    *pieces, last = [message async for message in service.generation.GenerateStream(asked)]
    texts = [message.piece.text for message in pieces]
    assert texts == ["  Good day.", " How are you?", "\r\n\r\n\tI paid 3.50 €.", " 🙂 Bye!", "\n"]
    assert last.result.hypotheses[0].text == "".join(texts)
    assert len(last.result.segments) == 4


async def test_a_piece_does_not_wait_for_later_segments() -> None:
    async with serving(slots=1) as service:
        service.runtime.hold_after(0)
        asked = request("Soon. " + "Later and later. " * 3, segmentation="sentences")
        call = service.generation.GenerateStream(asked)
        assert (await stepwise(service, call.read())).piece.text == "Soon."
        await until(lambda: service.engine.slots_in_use == 1)
        call.cancel()
        service.runtime.go_on()
        await until(lambda: service.engine.slots_in_use == 0)


async def test_a_lone_segment_is_streamed_as_it_is_decoded(service: Service) -> None:
    asked = request(" \nGood day.\n", segmentation="sentences")
    # Tokens that come while no piece is read come in one.
    service.runtime.hold_after(2)
    messages = []
    async for message in service.generation.GenerateStream(asked):
        messages.append(message)
        service.runtime.allow(2)
    service.runtime.go_on()
    *pieces, last = messages
    texts = [message.piece.text for message in pieces]
    assert (texts[0], texts[-1]) == (" \n", "\n") and len(texts) > 3
    whole = await service.generation.Generate(asked)
    for answer in (whole, last.result):
        answer.ClearField("timings")
    assert last.result == whole
    assert "".join(texts) == whole.hypotheses[0].text == " \nGood day.\n"
    ids = [id_ for message in pieces for id_ in message.piece.token_ids]
    assert ids == list(whole.segments[0].hypotheses[0].token_ids)


async def test_many_texts_in_one_call(service: Service) -> None:
    asked = batch(TEXT, " \n", "One. Two.", segmentation="sentences")
    first, blank, last = (await service.generation.GenerateBatch(asked)).outcomes
    assert targets_of(first.response) == SENTENCES
    assert (blank.failure.field, blank.failure.message) == ("source", "source: is empty")
    assert targets_of(last.response) == ["One.", "Two."]


@pytest.mark.parametrize("slots", [1, 2, 4])
async def test_half_as_many_wait_as_run(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though each of many texts of a call has many."""
    under_way = most = 0
    submit = EngineGroup.submit

    def counted(engine: EngineGroup, spec: GenerateSpec, receive: Receive) -> int:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)

        def received(event: Event, timeline: Timeline | None) -> None:
            nonlocal under_way
            under_way -= isinstance(event, Finished)
            receive(event, timeline)

        return submit(engine, spec, received)

    monkeypatch.setattr(EngineGroup, "submit", counted)
    sources = ["Go on. " * 10] * 6
    asked = batch(*sources, segmentation="sentences")
    async with serving(slots=slots) as service:
        found = await service.generation.GenerateBatch(asked)
    assert [each.response.hypotheses[0].text for each in found.outcomes] == sources
    assert (under_way, most) == (0, slots + slots // 2)


async def test_another_call_passes_a_text_of_many_segments() -> None:
    async with serving(slots=1) as service:
        service.runtime.hold_after(0)
        text = asyncio.ensure_future(service.generate("Go on. " * 40, segmentation="sentences"))
        await until(lambda: service.engine.slots_in_use == 1)
        await stepwise(service, service.generation.Generate(request("I too")))
        assert not text.done()
        service.runtime.go_on()
        assert (await text).hypotheses[0].text == "Go on. " * 40


async def test_what_is_not_read_stays(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = type(service.repository.models()[0].tokenizer)
    for name in ("encode", "pieces"):
        read = getattr(tokenizer, name)
        monkeypatch.setattr(
            tokenizer, name, lambda self, text, read=read: read(self, text.replace("∎", ""))
        )
    answer = await service.generate("A.\n∎\nB.", segmentation="lines")
    assert targets_of(answer) == ["A.", "∎", "B."]
    assert [len(segment.hypotheses) for segment in answer.segments] == [1, 0, 1]
    answer = await service.generate("∎\n∎", segmentation="lines")
    assert targets_of(answer) == ["∎", "∎"]
    assert not answer.hypotheses[0].HasField("score")


async def test_what_is_kept_has_its_places_in_the_whole_text(service: Service) -> None:
    text = "I saw {a}. Ask {b}."
    asked = request(text, segmentation="sentences", keep_placeholders=True)
    kept = (await service.generation.Generate(asked)).hypotheses[0].kept
    sources = [text[each.source_begin : each.source_end] for each in kept]
    targets = [text[each.target_begin : each.target_end] for each in kept]
    assert sources == targets == ["{a}", "{b}"]


@pytest.mark.parametrize(
    ("source", "options", "field", "reason"),
    [
        ("a", {"segmentation": "words"}, "options.segmentation", "one of none, lines, sentences"),
        ("a", {"segmentation": "lines", "target_prefix": "b"}, "options.segmentation", "prefix"),
        (" \n ", {"segmentation": "lines"}, "source", "is empty"),
        ("a" * 1_000_001, {"segmentation": "lines"}, "source", "1,000,001 characters"),
        ("a\n" * 4097, {"segmentation": "lines"}, "source", "more than 4,096 segments"),
    ],
)
async def test_bad_input_is_refused_by_its_field(
    source: str, options: dict[str, Any], field: str, reason: str
) -> None:
    async with serving(max_message_bytes=1 << 21) as service:
        found, description = await invalid(service.generate(source, **options))
        assert found == field and reason in description


async def test_an_answer_that_may_need_too_much_memory_is_refused() -> None:
    async with serving(max_answer_mb=1, caller_share=0.5) as service:
        field, reason = await invalid(service.generate("a\n" * 100, segmentation="lines"))
        assert field == "options.max_decoding_length"
        assert "the answers to 100 segments" in reason
        assert await service.value("answer_bytes") == 0


async def test_the_segments_of_a_batch_are_bounded_together(service: Service) -> None:
    asked = batch(*["a\n" * 2049] * 2, segmentation="lines")
    field, reason = await invalid(service.generation.GenerateBatch(asked))
    assert field == "sources" and "4,096 segments together" in reason


async def test_a_text_fails_as_a_whole(service: Service) -> None:
    service.runtime.fault = RuntimeError("broken")
    error = await failure(service.generate(TEXT, segmentation="lines"))
    assert error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)
