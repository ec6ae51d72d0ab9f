"""From the messages of ``seqserve.v1`` to the results of the client.

A response that breaks the server's contract becomes an :class:`~seqserve.InternalError`.
"""

from collections.abc import Callable, Collection, Iterable
from enum import Enum
from types import NoneType
from typing import Any, TypeVar, get_args

from google.protobuf.message import Message

from seqserve import results
from seqserve._transport.status import error_within
from seqserve.attention import AttentionResult, AttentionWeights, ScoreResult, TokenizeResult
from seqserve.errors import CallError, InternalError
from seqserve.model import Glossary, LanguagePair, Model, ModelState, Usage
from seqserve.results import SourceWarning, TextWarning, TextWarningKind
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
    return _result_of(response)


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


def languages_of(response: generation_pb2.DetectLanguageResponse) -> list[results.DetectedLanguage]:
    """Converts the response of DetectLanguage."""
    return [*map(_detected_of, response.languages)]


def model_of(message: model_pb2.Model) -> Model:
    """Converts one version of one model."""
    return _converted(Model, message, state=_state_of(message.state))


def models_of(response: Any) -> list[Model]:
    """Converts the response of ListModels or SetTraffic."""
    return [model_of(model) for model in response.models]


def pairs_of(response: model_pb2.ListModelsResponse) -> list[LanguagePair]:
    """Returns the pairs of the response of ListModels."""
    return [_converted(LanguagePair, pair) for pair in response.pairs]


def usages_of(response: model_pb2.GetUsageResponse) -> list[Usage]:
    """Converts the response of GetUsage."""
    return [_converted(Usage, usage) for usage in response.usages]


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


def _reader(
    kind: type[R], message: type[Any], /, **converters: Callable[[Any], Any]
) -> Callable[[Any], R]:
    """Returns what converts messages of a type.

    Most fields of most messages are not set, so that only those are read that are.
    """
    unset: dict[str, Any] = {}
    for name, field in kind.__dataclass_fields__.items():  # type: ignore[attr-defined]
        value = getattr(message(), name)
        if NoneType in get_args(field.type):
            unset[name] = None
        elif type(value) in _SCALARS or isinstance(value, Message):
            unset[name] = converters[name](value) if name in converters else value
        else:
            unset[name] = ()

    def read(message: Any) -> R:
        values = unset.copy()
        for field, value in message.ListFields():
            name = field.name
            if name in converters:
                values[name] = converters[name](value)
            elif name in values:
                values[name] = value if type(value) in _SCALARS else tuple(value)
        return kind(**values)

    return read


def _each(convert: Callable[[Any], R]) -> Callable[[Iterable[Any]], tuple[R, ...]]:
    return lambda messages: tuple(map(convert, messages))


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InternalError("INTERNAL", f"the server answered with {otherwise}")


def _check_lengths(*columns: Collection[Any], of: str, what: str = "score") -> None:
    _check(len(set(map(len, columns))) == 1, f"{of} that lack a {what}")


_timings_of = _reader(results.Timings, generation_pb2.Timings)
_detected_of = _reader(results.DetectedLanguage, generation_pb2.DetectedLanguage)
_kept_of = _reader(results.KeptText, generation_pb2.KeptText, placement=_placement_of)
_text_warning_of = _reader(TextWarning, generation_pb2.TextWarning, kind=_text_warning_kind_of)
_leg_of = _reader(results.Leg, generation_pb2.Leg, stop_reason=_stop_reason_of)
_hypothesis_of = _reader(
    results.Hypothesis,
    generation_pb2.Hypothesis,
    stop_reason=_stop_reason_of,
    top_tokens=_each(_top_tokens_of),
    attention=_each(lambda token: tuple(token.weights)),
    unmet_terms=_each(_term_of),
    alignment=_alignment_of,
    kept=_each(_kept_of),
    warnings=_each(_text_warning_of),
)
_segment_of = _reader(
    results.Segment,
    generation_pb2.Segment,
    hypotheses=_each(_hypothesis_of),
    source_warnings=_each(_warning_of),
)
_result_of = _reader(
    results.Result,
    generation_pb2.GenerateResponse,
    hypotheses=_each(_hypothesis_of),
    timings=_timings_of,
    segments=_each(_segment_of),
    source_warnings=_each(_warning_of),
    legs=_each(_leg_of),
    detected_language=_detected_of,
)
