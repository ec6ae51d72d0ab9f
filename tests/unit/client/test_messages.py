from __future__ import annotations

from typing import Any

import pytest

from seqserve import messages
from seqserve.errors import InternalError, InvalidArgument
from seqserve.results import ModelState, Piece, StopReason, Timings
from seqserve.v1 import generation_pb2, model_pb2

from .answers import answer, stream_of


def test_what_is_not_said_is_left_to_the_server() -> None:
    request = messages.generate_request("Hallo")
    assert request == generation_pb2.GenerateRequest(source="Hallo")
    assert not request.HasField("options")


def test_what_is_said_is_sent() -> None:
    request = messages.generate_request(
        "Hallo", model="m", version=3, max_decoding_length=9, min_decoding_length=0
    )
    options = generation_pb2.GenerationOptions(max_decoding_length=9, min_decoding_length=0)
    assert request == generation_pb2.GenerateRequest(
        source="Hallo", model="m", version=3, options=options
    )
    assert request.options.HasField("min_decoding_length")


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("source", None, "None is not a text"),
        ("source", 7, "7 is not a text"),
        ("source", ["a"], "is not a text"),
        ("source", "ab\ud83dc", "half a character .* at position 2"),
        ("model", 7, "7 is not a text"),
        ("version", -1, "-1 is not a whole number that fits 32 bits"),
        ("version", 1 << 32, "whole number"),
        ("version", "1", "whole number"),
        ("max_decoding_length", 1.5, "whole number"),
        ("min_decoding_length", 1 << 31, "whole number"),
    ],
)
def test_what_no_message_can_carry_names_its_field(field: str, value: Any, reason: str) -> None:
    arguments = {"source": "text", field: value}
    with pytest.raises(InvalidArgument, match=f"^INVALID_ARGUMENT: {field}: .*{reason}") as refused:
        messages.generate_request(**arguments)
    assert refused.value.field == field


def test_an_unknown_option_is_a_mistake_in_the_program() -> None:
    with pytest.raises(TypeError, match="beam"):
        messages.generate_request("text", beam=4)  # type: ignore[call-arg]


def test_get_model_request() -> None:
    assert messages.get_model_request("m", 2) == model_pb2.GetModelRequest(model="m", version=2)
    assert messages.get_model_request(None, None) == model_pb2.GetModelRequest()


def test_result() -> None:
    result = messages.result_of(answer("good day"))
    assert result.text == result.hypotheses[0].text == "GOOD DAY"
    assert result.tokens == ("GOOD", "DAY")
    assert result.token_ids == (10, 11)
    assert result.score == -1.5
    assert result.stop_reason is StopReason.EOS
    assert (result.model, result.version) == ("capitals", 2)
    assert (result.source_tokens, result.generated_tokens) == (3, 2)
    assert result.timings == Timings(
        queue_ms=1.0, encode_ms=2.0, decode_ms=3.0, first_token_ms=4.0, total_ms=6.0
    )


def test_an_answer_without_a_hypothesis_breaks_the_contract() -> None:
    with pytest.raises(InternalError, match="no hypothesis"):
        messages.result_of(generation_pb2.GenerateResponse())


def test_pieces() -> None:
    pieces = [messages.piece_of(response) for response in stream_of("ab")]
    assert pieces[:2] == [Piece(text="A", token_ids=(0,)), Piece(text="B", token_ids=(1,))]
    assert pieces[2] == Piece(text="", result=messages.result_of(answer("ab")))


def test_model() -> None:
    message = model_pb2.Model(
        name="m", version=4, state=model_pb2.MODEL_STATE_LOADING, vocabulary_size=9, licence="MIT"
    )
    model = messages.model_of(message)
    assert (model.name, model.version, model.state) == ("m", 4, ModelState.LOADING)
    assert (model.vocabulary_size, model.licence, model.is_default) == (9, "MIT", False)


@pytest.mark.parametrize("number", [0, 99])
def test_enums_of_a_newer_server_do_no_harm(number: int) -> None:
    response = answer("x")
    response.hypotheses[0].stop_reason = number  # type: ignore[assignment]
    assert messages.result_of(response).stop_reason is StopReason.UNSPECIFIED


def names(wire: Any) -> list[str]:
    return [value.name for value in wire.DESCRIPTOR.values]


def test_the_enums_mirror_the_wire() -> None:
    reasons = [name.removeprefix("STOP_REASON_") for name in names(generation_pb2.StopReason)]
    states = [name.removeprefix("MODEL_STATE_") for name in names(model_pb2.ModelState)]
    assert [reason.name for reason in StopReason] == reasons
    assert [state.name for state in ModelState] == states
