"""From the messages of ``seqserve.v1`` to the results of the client.

A response that breaks the server's contract becomes an :class:`~seqserve.InternalError`.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import Any, TypeVar

from seqserve._transport.status import error_within
from seqserve.attention import AttentionResult, AttentionWeights
from seqserve.errors import CallError, InternalError
from seqserve.results import (
    Hypothesis,
    Model,
    ModelState,
    Piece,
    Result,
    ScoreResult,
    StopReason,
    Timings,
    TopToken,
)
from seqserve.v1 import generation_pb2, model_pb2

E = TypeVar("E", bound=Enum)


def result_of(response: generation_pb2.GenerateResponse) -> Result:
    """Converts the response of Generate.

    Raises:
        InternalError: The response has no hypothesis, or a malformed one.
    """
    _check(len(response.hypotheses) > 0, "no hypothesis")
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
        source_pieces=tuple(response.source_pieces),
    )


def outcomes_of(
    response: generation_pb2.GenerateBatchResponse, sources: int
) -> list[Result | CallError]:
    """Converts the response of GenerateBatch.

    Args:
        response: The response.
        sources: Number of sources, each of which must have an outcome.

    Raises:
        InternalError: The response has another number of outcomes.
    """
    _check(len(response.outcomes) == sources, "outcomes that do not belong to the sources")
    return [outcome_of(outcome) for outcome in response.outcomes]


def outcome_of(outcome: generation_pb2.Outcome) -> Result | CallError:
    """Converts the outcome of one of many sources.

    Raises:
        InternalError: The outcome breaks the server's contract.
    """
    if outcome.HasField("response"):
        return result_of(outcome.response)
    return error_within(outcome.failure)


def piece_of(response: generation_pb2.GenerateStreamResponse) -> Piece:
    """Converts one message of GenerateStream; the message with the result has no text.

    Raises:
        InternalError: The result breaks the server's contract.
    """
    if response.HasField("result"):
        return Piece(text="", result=result_of(response.result))
    return Piece(text=response.piece.text, token_ids=tuple(response.piece.token_ids))


def not_asked(id_: int) -> InternalError:
    """Returns the error for an answer to an unknown or already answered request."""
    return InternalError("INTERNAL", f"the server answered {id_}, which waits for no answer")


def unanswered() -> InternalError:
    """Returns the error for a bulk call that ended with OK before all its answers."""
    return InternalError("INTERNAL", "the server ended the call before it had answered all")


def broken_off() -> InternalError:
    """Returns the error for a stream that ended without its result."""
    return InternalError("INTERNAL", "the server ended the stream without a result")


def score_of(response: generation_pb2.ScoreResponse) -> ScoreResult:
    """Converts the response of Score.

    Raises:
        InternalError: A token lacks its id or its score.
    """
    _check_lengths(response.tokens, response.token_ids, response.token_scores, of="tokens")
    return ScoreResult(
        model=response.model,
        version=response.version,
        tokens=tuple(response.tokens),
        token_ids=tuple(response.token_ids),
        token_scores=tuple(response.token_scores),
        score=response.score,
        normalized_score=response.normalized_score,
        source_tokens=response.source_tokens,
    )


def attention_of(response: generation_pb2.AttentionResponse) -> AttentionResult:
    """Converts the response of Attention.

    Raises:
        InternalError: The number of weights does not fit the tokens.
    """
    source, target = len(response.source_tokens), len(response.target_tokens)
    return AttentionResult(
        model=response.model,
        version=response.version,
        source_tokens=tuple(response.source_tokens),
        target_tokens=tuple(response.target_tokens),
        encoder=_weights_of(response.encoder, source, source),
        decoder=_weights_of(response.decoder, target, target),
        cross=_weights_of(response.cross, target, source),
    )


def model_of(message: model_pb2.Model) -> Model:
    """Converts one version of one model."""
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
        traffic_share=message.traffic_share,
    )


def models_of(response: Any) -> list[Model]:
    """Converts the response of ListModels or SetTraffic."""
    return [model_of(model) for model in response.models]


def _hypothesis_of(message: generation_pb2.Hypothesis) -> Hypothesis:
    reasons = generation_pb2.StopReason
    return Hypothesis(
        text=message.text,
        tokens=tuple(message.tokens),
        token_ids=tuple(message.token_ids),
        score=message.score if message.HasField("score") else None,
        normalized_score=message.normalized_score if message.HasField("normalized_score") else None,
        stop_reason=_member(StopReason, reasons, "STOP_REASON_", message.stop_reason),
        token_scores=tuple(message.token_scores),
        top_tokens=tuple(_top_tokens_of(step) for step in message.top_tokens),
        attention=tuple(tuple(token.weights) for token in message.attention),
        unmet_terms=tuple((term.source, term.target) for term in message.unmet_terms),
    )


def _top_tokens_of(message: generation_pb2.TopTokens) -> tuple[TopToken, ...]:
    columns = message.tokens, message.token_ids, message.scores
    _check_lengths(*columns, of="top tokens")
    return tuple(
        TopToken(token=token, token_id=token_id, score=score)
        for token, token_id, score in zip(*columns, strict=True)
    )


def _weights_of(
    message: generation_pb2.AttentionWeights, queries: int, keys: int
) -> AttentionWeights:
    expected = message.layers * message.heads * queries * keys
    _check(
        (message.queries, message.keys, len(message.weights)) == (queries, keys, expected),
        "weights that do not belong to the tokens",
    )
    return AttentionWeights(
        layers=message.layers,
        heads=message.heads,
        queries=queries,
        keys=keys,
        weights=tuple(message.weights),
    )


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InternalError("INTERNAL", f"the server answered with {otherwise}")


def _check_lengths(*columns: Collection[Any], of: str) -> None:
    _check(len(set(map(len, columns))) == 1, f"{of} that lack a score")


def _member(members: type[E], wire: Any, prefix: str, number: int) -> E:
    # Enums of proto3 are open: a newer server may send a number that has no name here.
    name = wire.Name(number).removeprefix(prefix) if number in wire.values() else "UNSPECIFIED"
    return members[name]
