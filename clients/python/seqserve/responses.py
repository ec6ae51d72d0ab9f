"""From the messages of ``seqserve.v1`` to the results of the client.

A response that breaks the server's contract becomes an :class:`~seqserve.InternalError`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Any, TypeVar

from seqserve import results
from seqserve._transport.status import error_within
from seqserve.attention import (
    AttentionResult,
    AttentionWeights,
    ScoreResult,
    TokenizeResult,
)
from seqserve.errors import CallError, InternalError
from seqserve.model import Glossary, LanguagePair, Model, ModelState
from seqserve.text_warnings import SourceWarning, TextWarning, TextWarningKind
from seqserve.v1 import generation_pb2, model_pb2

R = TypeVar("R")
E = TypeVar("E", bound=Enum)

_SCALARS = {str, int, float, bool}


def _members_of(kind: type[E], enum: Any) -> Callable[[int], E]:
    """Returns what finds the member for a number of an enum of the protos.

    Enums of proto3 are open: a newer server may send a number that is not here. It is unspecified.
    """
    prefix = enum.Name(0).removesuffix("UNSPECIFIED")
    members = {number: kind[name.removeprefix(prefix)] for name, number in enum.items()}
    return lambda number: members.get(number, members[0])


_state_of = _members_of(ModelState, model_pb2.ModelState)
_stop_reason_of = _members_of(results.StopReason, generation_pb2.StopReason)
_warning_of = _members_of(SourceWarning, generation_pb2.SourceWarning)
_text_warning_kind_of = _members_of(TextWarningKind, generation_pb2.TextWarningKind)
_placement_of = _members_of(results.Placement, generation_pb2.Placement)


def result_of(response: generation_pb2.GenerateResponse) -> results.Result:
    """Converts the response of Generate."""
    _check(len(response.hypotheses) > 0, "no hypothesis")
    return _converted(
        results.Result,
        response,
        hypotheses=tuple(map(_hypothesis_of, response.hypotheses)),
        timings=_converted(results.Timings, response.timings),
        segments=tuple(map(_segment_of, response.segments)),
        source_warnings=tuple(map(_warning_of, response.source_warnings)),
        legs=tuple(map(_leg_of, response.legs)),
        detected_language=_detected_of(response.detected_language)
        if response.HasField("detected_language")
        else None,
    )


def outcomes_of(
    response: generation_pb2.GenerateBatchResponse, sources: int
) -> list[results.Result | CallError]:
    """Converts the response of GenerateBatch, which must have an outcome for each source."""
    _check(len(response.outcomes) == sources, "outcomes that do not belong to the sources")
    return [outcome_of(outcome) for outcome in response.outcomes]


def outcome_of(outcome: generation_pb2.Outcome) -> results.Result | CallError:
    """Converts the outcome of one of many sources."""
    if outcome.HasField("response"):
        return result_of(outcome.response)
    return error_within(outcome.failure)


def piece_of(response: generation_pb2.GenerateStreamResponse) -> results.Piece:
    """Converts one message of GenerateStream; the message with the result has no text."""
    if response.HasField("result"):
        return results.Piece(text="", result=result_of(response.result))
    return results.Piece(text=response.piece.text, token_ids=tuple(response.piece.token_ids))


def score_of(response: generation_pb2.ScoreResponse) -> ScoreResult:
    """Converts the response of Score."""
    _check_lengths(response.tokens, response.token_ids, response.token_scores, of="tokens")
    return _converted(ScoreResult, response)


def attention_of(response: generation_pb2.AttentionResponse) -> AttentionResult:
    """Converts the response of Attention."""
    source, target = len(response.source_tokens), len(response.target_tokens)
    return _converted(
        AttentionResult,
        response,
        encoder=_weights_of(response.encoder, source, source),
        decoder=_weights_of(response.decoder, target, target),
        cross=_weights_of(response.cross, target, source),
    )


def tokens_of(response: generation_pb2.TokenizeResponse) -> TokenizeResult:
    """Converts the response of Tokenize."""
    columns = response.tokens, response.token_ids, response.begins, response.ends
    _check_lengths(*columns, of="tokens", what="place")
    return _converted(TokenizeResult, response)


def text_of(response: generation_pb2.DetokenizeResponse) -> str:
    """Returns the text of the response of Detokenize."""
    return response.text


def languages_of(
    response: generation_pb2.DetectLanguageResponse,
) -> list[results.DetectedLanguage]:
    """Converts the response of DetectLanguage."""
    return [_detected_of(language) for language in response.languages]


def model_of(message: model_pb2.Model) -> Model:
    """Converts one version of one model."""
    return _converted(Model, message, state=_state_of(message.state))


def models_of(response: Any) -> list[Model]:
    """Converts the response of ListModels or SetTraffic."""
    return [model_of(model) for model in response.models]


def pairs_of(response: model_pb2.ListModelsResponse) -> list[LanguagePair]:
    """Returns the pairs of the response of ListModels."""
    return [_converted(LanguagePair, pair) for pair in response.pairs]


def glossary_of(response: model_pb2.GetGlossaryResponse) -> Glossary:
    """Converts the response of GetGlossary."""
    return _glossary_of(response.glossary, map(_term_of, response.entries))


def glossaries_of(response: model_pb2.ListGlossariesResponse) -> list[Glossary]:
    """Converts the response of ListGlossaries."""
    return [_glossary_of(glossary, ()) for glossary in response.glossaries]


def _glossary_of(message: model_pb2.Glossary, entries: Iterable[tuple[str, str]]) -> Glossary:
    return _converted(Glossary, message, entries=tuple(entries))


def _term_of(message: generation_pb2.Term) -> tuple[str, str]:
    return message.source, message.target


def _leg_of(message: generation_pb2.Leg) -> results.Leg:
    return _converted(
        results.Leg,
        message,
        stop_reason=_stop_reason_of(message.stop_reason),
        confidence=message.confidence if message.HasField("confidence") else None,
    )


def _detected_of(message: generation_pb2.DetectedLanguage) -> results.DetectedLanguage:
    return _converted(results.DetectedLanguage, message)


def _hypothesis_of(message: generation_pb2.Hypothesis) -> results.Hypothesis:
    return _converted(
        results.Hypothesis,
        message,
        score=message.score if message.HasField("score") else None,
        normalized_score=message.normalized_score if message.HasField("normalized_score") else None,
        stop_reason=_stop_reason_of(message.stop_reason),
        top_tokens=tuple(map(_top_tokens_of, message.top_tokens)),
        attention=tuple(tuple(token.weights) for token in message.attention),
        unmet_terms=tuple(map(_term_of, message.unmet_terms)),
        confidence=message.confidence if message.HasField("confidence") else None,
        alignment=_alignment_of(message.alignment),
        kept=tuple(map(_kept_of, message.kept)),
        warnings=tuple(map(_text_warning_of, message.warnings)),
    )


def _segment_of(message: generation_pb2.Segment) -> results.Segment:
    return _converted(
        results.Segment,
        message,
        hypotheses=tuple(map(_hypothesis_of, message.hypotheses)),
        source_warnings=tuple(map(_warning_of, message.source_warnings)),
    )


def _alignment_of(message: generation_pb2.Alignment) -> tuple[results.AlignedToken, ...]:
    columns = (
        message.source_begins,
        message.source_ends,
        message.target_begins,
        message.target_ends,
    )
    _check_lengths(*columns, of="aligned tokens", what="place")
    return tuple(
        results.AlignedToken(
            source_begin=source_begin,
            source_end=source_end,
            target_begin=target_begin,
            target_end=target_end,
        )
        for source_begin, source_end, target_begin, target_end in zip(*columns, strict=True)
    )


def _kept_of(message: generation_pb2.KeptText) -> results.KeptText:
    return _converted(results.KeptText, message, placement=_placement_of(message.placement))


def _text_warning_of(message: generation_pb2.TextWarning) -> TextWarning:
    return _converted(TextWarning, message, kind=_text_warning_kind_of(message.kind))


def _top_tokens_of(message: generation_pb2.TopTokens) -> tuple[results.TopToken, ...]:
    columns = message.tokens, message.token_ids, message.scores
    _check_lengths(*columns, of="top tokens")
    return tuple(
        results.TopToken(token=token, token_id=token_id, score=score)
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
    return _converted(AttentionWeights, message)


def _converted(kind: type[R], message: Any, /, **converted: Any) -> R:
    for name in kind.__dataclass_fields__.keys() - converted.keys():  # type: ignore[attr-defined]
        value = getattr(message, name)
        converted[name] = value if type(value) in _SCALARS else tuple(value)
    return kind(**converted)


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InternalError("INTERNAL", f"the server answered with {otherwise}")


def _check_lengths(*columns: Collection[Any], of: str, what: str = "score") -> None:
    _check(len(set(map(len, columns))) == 1, f"{of} that lack a {what}")
