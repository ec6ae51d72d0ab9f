"""Between the client's values and the messages of ``seqserve.v1``: requests out, results in.

The only module of the client that knows the fields of the wire. The checks are thin on purpose:
what a field may hold is the server's to say; here is refused only what no message can carry.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypedDict, TypeVar

from google.protobuf.message import Message

from seqserve.errors import InternalError, InvalidArgument
from seqserve.results import Hypothesis, Model, ModelState, Piece, Result, StopReason, Timings
from seqserve.v1 import generation_pb2, model_pb2

E = TypeVar("E", bound=Enum)


class GenerateOptions(TypedDict, total=False):
    """What may be said beside the source; what is left out, or None, is the server's to decide."""

    model: str | None
    """Name of the model; the server's default where not said."""
    version: int | None
    """Version of the model; the highest sound one where not said."""
    max_decoding_length: int | None
    """Most target tokens, the end token not counted."""
    min_decoding_length: int | None
    """Fewest target tokens before the end token is allowed."""


def generate_request(
    source: str,
    *,
    model: str | None = None,
    version: int | None = None,
    max_decoding_length: int | None = None,
    min_decoding_length: int | None = None,
) -> generation_pb2.GenerateRequest:
    """Builds the request of Generate and GenerateStream from a source and its options.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = generation_pb2.GenerateRequest()
    _set(request, "source", source)
    _set(request, "model", model)
    _set(request, "version", version)
    _set(request.options, "max_decoding_length", max_decoding_length)
    _set(request.options, "min_decoding_length", min_decoding_length)
    return request


def get_model_request(name: str | None, version: int | None) -> model_pb2.GetModelRequest:
    """Builds the request of GetModel; None leaves a field to the server.

    Raises:
        InvalidArgument: A value does not fit its field.
    """
    request = model_pb2.GetModelRequest()
    _set(request, "model", name)
    _set(request, "version", version)
    return request


def result_of(response: generation_pb2.GenerateResponse) -> Result:
    """Converts the answer of Generate.

    Raises:
        InternalError: The server broke its contract: an answer has at least one hypothesis.
    """
    if not response.hypotheses:
        raise InternalError("INTERNAL", "the server answered with no hypothesis")
    timings = response.timings
    return Result(
        hypotheses=tuple(_hypothesis_of(hypothesis) for hypothesis in response.hypotheses),
        model=response.model,
        version=response.version,
        source_tokens=response.source_tokens,
        generated_tokens=response.generated_tokens,
        timings=Timings(
            queue_ms=timings.queue_ms,
            encode_ms=timings.encode_ms,
            decode_ms=timings.decode_ms,
            first_token_ms=timings.first_token_ms,
            total_ms=timings.total_ms,
        ),
    )


def piece_of(response: generation_pb2.GenerateStreamResponse) -> Piece:
    """Converts one message of GenerateStream; the one that holds the result has no text.

    Raises:
        InternalError: The result breaks the server's contract.
    """
    if response.HasField("result"):
        return Piece(text="", result=result_of(response.result))
    return Piece(text=response.piece.text, token_ids=tuple(response.piece.token_ids))


def broken_off() -> InternalError:
    """Gives the error for a stream that ended without its result."""
    return InternalError("INTERNAL", "the server ended the stream without a result")


def model_of(message: model_pb2.Model) -> Model:
    """Converts one model of ListModels or GetModel."""
    return Model(
        name=message.name,
        version=message.version,
        state=_member(ModelState, model_pb2.ModelState, "MODEL_STATE_", message.state),
        state_reason=message.state_reason,
        is_default=message.is_default,
        precision=message.precision,
        provider=message.provider,
        max_source_length=message.max_source_length,
        max_target_length=message.max_target_length,
        vocabulary_size=message.vocabulary_size,
        description=message.description,
        licence=message.licence,
    )


def _hypothesis_of(message: generation_pb2.Hypothesis) -> Hypothesis:
    return Hypothesis(
        text=message.text,
        tokens=tuple(message.tokens),
        token_ids=tuple(message.token_ids),
        score=message.score,
        stop_reason=_member(
            StopReason, generation_pb2.StopReason, "STOP_REASON_", message.stop_reason
        ),
    )


def _set(message: Message, field: str, value: Any) -> None:
    if value is None and field != "source":
        return
    try:
        setattr(message, field, value)
    except UnicodeEncodeError as error:
        reason = f"holds half a character (a lone surrogate) at position {error.start}; send text"
        raise InvalidArgument("INVALID_ARGUMENT", f"{field}: {reason}", field=field) from None
    except (TypeError, ValueError):
        kind = "a text" if field in ("source", "model") else "a whole number that fits 32 bits"
        reason = f"{field}: {value!r:.80} is not {kind}"
        raise InvalidArgument("INVALID_ARGUMENT", reason, field=field) from None


def _member(members: type[E], wire: Any, prefix: str, number: int) -> E:
    # Enums of proto3 are open: a newer server may send a number that has no name here.
    name = wire.Name(number).removeprefix(prefix) if number in wire.values() else "UNSPECIFIED"
    return members[name]
