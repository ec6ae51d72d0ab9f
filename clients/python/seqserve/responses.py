"""From the messages of ``seqserve.v1`` to the results of the client.

A response that breaks the server's contract becomes an :class:`~seqserve.InternalError`.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, partial
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin

from google.protobuf.message import Message

from seqserve import results
from seqserve._transport.status import error_within
from seqserve.attention import AttentionResult, AttentionWeights, ScoreResult, TokenizeResult
from seqserve.errors import CallError, InternalError
from seqserve.model import Glossary, LanguagePair, Model, Usage
from seqserve.v1 import generation_pb2, model_pb2

R = TypeVar("R")

_SCALARS = {str, int, float, bool}


def result_of(response: generation_pb2.GenerateResponse) -> results.Result:
    """Converts the response of Generate."""
    _check(len(response.hypotheses) > 0, "no hypothesis")
    return _read(results.Result, response)


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
    return _read(ScoreResult, response)


def attention_of(response: generation_pb2.AttentionResponse) -> AttentionResult:
    """Converts the response of Attention."""
    source, target = len(response.source_tokens), len(response.target_tokens)
    return _read(
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
    return _read(TokenizeResult, response)


def text_of(response: generation_pb2.DetokenizeResponse) -> str:
    """Returns the text of the response of Detokenize."""
    return response.text


def languages_of(response: generation_pb2.DetectLanguageResponse) -> list[results.DetectedLanguage]:
    """Converts the response of DetectLanguage."""
    return [_read(results.DetectedLanguage, each) for each in response.languages]


def model_of(message: model_pb2.Model) -> Model:
    """Converts one version of one model."""
    return _read(Model, message)


def models_of(response: Any) -> list[Model]:
    """Converts the response of ListModels or SetTraffic."""
    return [model_of(model) for model in response.models]


def pairs_of(response: model_pb2.ListModelsResponse) -> list[LanguagePair]:
    """Returns the pairs of the response of ListModels."""
    return [_read(LanguagePair, pair) for pair in response.pairs]


def usages_of(response: model_pb2.GetUsageResponse) -> list[Usage]:
    """Converts the response of GetUsage."""
    return [_read(Usage, usage) for usage in response.usages]


def glossary_of(response: model_pb2.GetGlossaryResponse) -> Glossary:
    """Converts the response of GetGlossary."""
    return _read(Glossary, response.glossary, entries=tuple(map(_term_of, response.entries)))


def glossaries_of(response: model_pb2.ListGlossariesResponse) -> list[Glossary]:
    """Converts the response of ListGlossaries."""
    return [_read(Glossary, each) for each in response.glossaries]


def _term_of(message: generation_pb2.Term) -> tuple[str, str]:
    return message.source, message.target


def _alignment_of(message: generation_pb2.Alignment) -> tuple[results.AlignedToken, ...]:
    names = [field.name for field in fields(results.AlignedToken)]
    columns = [getattr(message, f"{name}s") for name in names]
    _check_lengths(*columns, of="aligned tokens", what="place")
    places = zip(*columns, strict=True)
    return tuple(results.AlignedToken(**dict(zip(names, each, strict=True))) for each in places)


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
    return _read(AttentionWeights, message)


# Messages that have a value of another form, by their names.
_FORMS: Mapping[str, Callable[[Any], Any]] = {
    "Alignment": _alignment_of,
    "TokenAttention": lambda row: tuple(row.weights),
    "Term": _term_of,
    "TopTokens": _top_tokens_of,
}


def _read(kind: Callable[..., R], message: Any, **given: Any) -> R:
    """Converts a message to a dataclass, whose fields have the names and types of the message's.

    Most fields of most messages are not set, so that only those are read that are.
    """
    unset, converters = _fields(kind, type(message))  # type: ignore[arg-type]
    values = unset | given
    for field, value in message.ListFields():
        if field.name not in converters or field.name in given:
            continue
        convert = converters[field.name]
        if type(value) in _SCALARS or isinstance(value, Message):
            values[field.name] = convert(value) if convert else value
        else:
            values[field.name] = tuple(map(convert, value) if convert else value)
    return kind(**values)


@cache
def _fields(
    kind: Any, message: Any
) -> tuple[dict[str, Any], dict[str, Callable[[Any], Any] | None]]:
    """Returns the values of fields that are not set, and how others are converted; None if not."""
    declared = message.DESCRIPTOR.fields_by_name
    hints = {field.name: field.type for field in fields(kind)}
    converters = {
        name: _converter(declared[name], hints[name]) for name in hints.keys() & declared.keys()
    }
    return {name: _unset(hint) for name, hint in hints.items()}, converters


def _unset(hint: Any) -> Any:
    if NoneType in get_args(hint):
        return None
    if is_dataclass(hint):
        return hint(**{field.name: _unset(field.type) for field in fields(hint)})  # type: ignore[operator]
    kind = get_origin(hint) or hint
    return kind["UNSPECIFIED"] if issubclass(kind, Enum) else kind()


def _converter(field: Any, hint: Any) -> Callable[[Any], Any] | None:
    kinds = get_args(hint) or (hint,)
    if field.message_type:
        own: Any = next(filter(is_dataclass, kinds), None)
        return _FORMS.get(field.message_type.name) or partial(_read, own)
    if not field.enum_type:
        return None
    # Enums of proto3 are open: a newer server may send a number that is not here.
    own = next(each for each in kinds if issubclass(each, Enum))
    names = {value.number: value.name for value in field.enum_type.values}
    prefix = names[0].removesuffix("UNSPECIFIED")
    members = {number: own[name.removeprefix(prefix)] for number, name in names.items()}
    return lambda number: members.get(number, members[0])


def _check(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InternalError("INTERNAL", f"the server answered with {otherwise}")


def _check_lengths(*columns: Collection[Any], of: str, what: str = "score") -> None:
    _check(len(set(map(len, columns))) == 1, f"{of} that lack a {what}")
