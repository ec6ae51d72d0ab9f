import math
from typing import Any

import pytest

from seqserve import requests, responses
from seqserve.errors import InternalError
from seqserve.model import ModelState
from seqserve.results import (
    AlignedToken,
    DetectedLanguage,
    Leg,
    Piece,
    SourceWarning,
    StopReason,
    TextWarning,
    TextWarningKind,
    Timings,
    TopToken,
)
from seqserve.v1 import generation_pb2, model_pb2

from .answers import answer, attended, scored, stream_of, tokenized


def test_result() -> None:
    result = responses.result_of(answer("good day"))
    assert result.text == result.hypotheses[0].text == "GOOD DAY"
    assert result.tokens == ("GOOD", "DAY")
    assert result.token_ids == (10, 11)
    assert result.score == -1.5
    assert result.hypotheses[0].normalized_score == -0.5
    assert result.stop_reason is StopReason.EOS
    assert (result.model, result.version) == ("capitals", 2)
    assert (result.source_tokens, result.generated_tokens) == (3, 2)
    assert result.timings == Timings(
        queue_ms=1.0, encode_ms=2.0, decode_ms=3.0, first_token_ms=4.0, total_ms=6.0
    )


def test_a_score_that_was_not_computed_is_none_and_zero_is_a_score() -> None:
    response = answer("good day", options=generation_pb2.GenerationOptions(return_scores=False))
    result = responses.result_of(response)
    assert (result.score, result.hypotheses[0].normalized_score) == (None, None)
    response.hypotheses[0].score = response.hypotheses[0].normalized_score = 0.0
    result = responses.result_of(response)
    assert (result.score, result.hypotheses[0].normalized_score) == (0.0, 0.0)


def test_values_that_were_not_requested_are_empty() -> None:
    result = responses.result_of(answer("good day"))
    (hypothesis,) = result.hypotheses
    assert (hypothesis.token_scores, hypothesis.top_tokens, hypothesis.attention) == ((), (), ())
    assert hypothesis.unmet_terms == ()
    assert result.source_pieces == ()


def test_hypotheses_with_every_value_that_may_be_requested() -> None:
    options = generation_pb2.GenerationOptions(
        num_hypotheses=3, return_token_scores=True, return_top_tokens=2, return_attention=True
    )
    result = responses.result_of(answer("good day", options=options))
    found = [(hypothesis.text, hypothesis.score) for hypothesis in result.hypotheses]
    assert found == [("GOOD DAY", -1.5), ("GOOD DAY!", -2.5), ("GOOD DAY!!", -3.5)]
    best = result.hypotheses[0]
    assert math.isnan(best.token_scores[0])
    assert best.token_scores[1:] == (-0.5, -0.5)
    step = (
        TopToken(token="T0", token_id=0, score=-0.5),
        TopToken(token="T1", token_id=1, score=-1.5),
    )
    assert best.top_tokens == (step,) * 3
    assert best.attention == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
    assert result.source_pieces == ("good", "day", "</s>")


def test_unmet_terms_are_pairs() -> None:
    terms = {"good": "GUT", "fine": "FEIN", "day": "DAY"}
    options = requests.generate_request("", terms=terms, num_hypotheses=2).options
    result = responses.result_of(answer("good day", options=options))
    assert result.unmet_terms == (("good", "GUT"), ("fine", "FEIN"))
    assert dict(result.hypotheses[1].unmet_terms).items() <= terms.items()


def test_score() -> None:
    request = generation_pb2.ScoreRequest(source="good day", target="Guten Tag")
    result = responses.score_of(scored(request))
    assert result.tokens == ("Guten", "Tag", "</s>")
    assert result.token_ids == (10, 11, 12)
    assert result.token_scores == (-0.5, -1.0, -1.5)
    assert (result.score, result.normalized_score) == (-3.0, -1.0)
    assert (result.model, result.version, result.source_tokens) == ("capitals", 2, 3)


def test_attention() -> None:
    request = generation_pb2.AttentionRequest(source="good day", target="Tag")
    result = responses.attention_of(attended(request))
    assert (result.model, result.version) == ("capitals", 2)
    assert result.source_tokens == ("good", "day", "</s>")
    assert result.target_tokens == ("Tag", "</s>")
    shapes = [
        (weights.layers, weights.heads, weights.queries, weights.keys)
        for weights in (result.encoder, result.decoder, result.cross)
    ]
    assert shapes == [(2, 2, 3, 3), (2, 2, 2, 2), (2, 2, 2, 3)]
    assert result.cross.of(1, 0) == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]


def test_answers_that_lack_a_part_break_the_contract() -> None:
    score = scored(generation_pb2.ScoreRequest(source="a", target="b"))
    del score.token_ids[0]
    with pytest.raises(InternalError, match="tokens that lack a score"):
        responses.score_of(score)
    response = answer("a", options=generation_pb2.GenerationOptions(return_top_tokens=2))
    del response.hypotheses[0].top_tokens[1].scores[0]
    with pytest.raises(InternalError, match="top tokens that lack a score"):
        responses.result_of(response)
    tokens = tokenized(generation_pb2.TokenizeRequest(text="a b"))
    del tokens.ends[0]
    with pytest.raises(InternalError, match="tokens that lack a place"):
        responses.tokens_of(tokens)
    with pytest.raises(InternalError, match="no hypothesis"):
        responses.result_of(generation_pb2.GenerateResponse())


def test_segments() -> None:
    message = answer("good day")
    hypotheses = message.hypotheses
    message.segments.add(source_begin=1, source_end=3, target_end=8, hypotheses=hypotheses)
    message.segments.add(source_begin=4, source_end=5, is_wrapped=True)
    first, last = responses.result_of(message).segments
    assert (first.source_begin, first.source_end) == (1, 3)
    assert (first.target_begin, first.target_end) == (0, 8)
    assert first.hypotheses == responses.result_of(message).hypotheses
    assert (last.is_wrapped, last.hypotheses) == (True, ())


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("change", ["weights", "keys", "queries"])
def test_weights_that_lack_a_token_break_the_contract(kind: str, change: str) -> None:
    response = attended(generation_pb2.AttentionRequest(source="a", target="b"))
    weights = getattr(response, kind)
    if change == "weights":
        del weights.weights[0]
    else:
        setattr(weights, change, getattr(weights, change) + 1)
    with pytest.raises(InternalError, match="weights that do not belong to the tokens"):
        responses.attention_of(response)


def test_pieces() -> None:
    pieces = [responses.piece_of(response) for response in stream_of("ab")]
    assert pieces[:2] == [Piece(text="A", token_ids=(0,)), Piece(text="B", token_ids=(1,))]
    assert pieces[2] == Piece(text="", result=responses.result_of(answer("ab")))


def test_model() -> None:
    message = model_pb2.Model(
        name="m", version=4, state=model_pb2.MODEL_STATE_LOADING, vocabulary_size=9, licence="MIT"
    )
    model = responses.model_of(message)
    assert (model.name, model.version, model.state) == ("m", 4, ModelState.LOADING)
    assert (model.vocabulary_size, model.licence, model.is_default) == (9, "MIT", False)


@pytest.mark.parametrize("number", [0, 99])
def test_unknown_enum_members_of_a_newer_server_are_unspecified(number: int) -> None:
    response = answer("x")
    response.hypotheses[0].stop_reason = number  # type: ignore[assignment]
    assert responses.result_of(response).stop_reason is StopReason.UNSPECIFIED


def test_the_enums_mirror_the_wire() -> None:
    for ours, wire, prefix in (
        (StopReason, generation_pb2.StopReason, "STOP_REASON_"),
        (ModelState, model_pb2.ModelState, "MODEL_STATE_"),
    ):
        names = [value.name.removeprefix(prefix) for value in wire.DESCRIPTOR.values]
        assert [member.name for member in ours] == names


def test_warnings_of_a_text() -> None:
    source: dict[str, Any] = {"source_text": "85642", "source_begin": 6, "source_end": 11}
    target: dict[str, Any] = {"target_text": "2019", "target_begin": 7, "target_end": 11}
    kind = generation_pb2.TEXT_WARNING_KIND_NUMBERS_DIFFER
    message = generation_pb2.TextWarning(kind=kind, **source, **target)
    hypothesis = generation_pb2.Hypothesis(warnings=[message])
    # Of a newer server.
    hypothesis.warnings.add(kind=99)  # type: ignore[arg-type]
    result = responses.result_of(generation_pb2.GenerateResponse(hypotheses=[hypothesis]))
    warning, unknown = result.warnings
    assert warning == TextWarning(kind=TextWarningKind.NUMBERS_DIFFER, **source, **target)
    assert str(warning) == "numbers differ: 85642 -> 2019"
    assert str(unknown) == "unspecified: nothing -> nothing"


def test_confidence_warnings_and_alignment() -> None:
    alignment = generation_pb2.Alignment(
        source_begins=[0], source_ends=[1], target_begins=[2], target_ends=[4]
    )
    hypothesis = generation_pb2.Hypothesis(confidence=0.25, alignment=alignment)
    known = generation_pb2.SOURCE_WARNING_MARKUP
    response = generation_pb2.GenerateResponse(
        hypotheses=[hypothesis],
        source_warnings=[known],
        segments=[generation_pb2.Segment(source_warnings=[known])],
    )
    # Of a newer server.
    response.source_warnings.append(99)  # type: ignore[arg-type]
    result = responses.result_of(response)
    assert result.confidence == 0.25
    assert result.source_warnings == (SourceWarning.MARKUP, SourceWarning.UNSPECIFIED)
    assert result.segments[0].source_warnings == (SourceWarning.MARKUP,)
    token = AlignedToken(source_begin=0, source_end=1, target_begin=2, target_end=4)
    assert result.hypotheses[0].alignment == (token,)
    alignment.target_ends.append(9)
    response.hypotheses[0].alignment.CopyFrom(alignment)
    with pytest.raises(InternalError, match="aligned tokens that lack a place"):
        responses.result_of(response)


def test_a_result_over_a_pivot_has_both_legs_and_the_language_that_was_detected() -> None:
    facts: dict[str, Any] = {"model": "ko-en", "version": 1, "text": "coffee", "confidence": 0.5}
    facts |= {"source_language": "ko", "target_language": "en"}
    facts |= {"source_tokens": 3, "generated_tokens": 2}
    first = generation_pb2.Leg(**facts, stop_reason=generation_pb2.STOP_REASON_EOS)
    second = generation_pb2.Leg(model="en-de", version=2, stop_reason=99)  # type: ignore[arg-type]
    response = generation_pb2.GenerateResponse(
        hypotheses=[generation_pb2.Hypothesis(text="Kaffee")],
        legs=[first, second],
        detected_language=generation_pb2.DetectedLanguage(language="ko", confidence=1.0),
    )
    result = responses.result_of(response)
    assert result.legs[0] == Leg(**facts, stop_reason=StopReason.EOS)
    assert (result.legs[1].confidence, result.legs[1].stop_reason) == (None, StopReason.UNSPECIFIED)
    assert result.detected_language == DetectedLanguage(language="ko", confidence=1.0)
    assert "ko-en/1 → en-de/2" in result._repr_html_()
    response.ClearField("detected_language")
    assert responses.result_of(response).detected_language is None
