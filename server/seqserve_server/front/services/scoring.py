"""Answers the calls for a given target: Score and Attention."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import Message

from seqserve.v1 import generation_pb2
from seqserve_server.contract.request import GenerateSpec, ScoreSpec
from seqserve_server.front.answer.engine_call import EngineCall
from seqserve_server.front.answer.response import weights_of
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.request.languages import Affixes, affixes_of
from seqserve_server.front.request.options import RequestOptions, default_options
from seqserve_server.front.request.parts import SourceReader, target_tokens

_Request = generation_pb2.ScoreRequest | generation_pb2.AttentionRequest


async def score(
    model: ServedModel, request: generation_pb2.ScoreRequest, call: ServerCall
) -> generation_pb2.ScoreResponse:
    """Scores a given target."""
    affixes = _affixes(model, request)
    source = await _source_tokens(model, request, affixes, call)
    target = target_tokens(model, request.target, affixes)
    size = AnswerSize.scored(len(source), len(target), model.tokenizer.token_bytes)
    await call.reserve(size, request)
    spec = ScoreSpec(
        source=source,
        target=target,
        start_token=affixes.start_token,
        **call.spec_fields(),
    )
    scores = (await EngineCall(model.engine, spec, call).target_scored()).token_scores
    # What the model wants first is given, like the prefix of a generated text.
    num_given = len(affixes.target)
    target, scores = target[num_given:], scores[num_given:]
    return generation_pb2.ScoreResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        tokens=model.tokenizer.tokens(target),
        token_ids=target,
        token_scores=scores,
        score=sum(scores),
        normalized_score=sum(scores) / len(scores),
        source_tokens=len(source),
    )


async def attention(
    model: ServedModel, request: generation_pb2.AttentionRequest, call: ServerCall
) -> generation_pb2.AttentionResponse:
    """Returns the attention of a target, which is generated if the request has none."""
    affixes = _affixes(model, request)
    source = await _source_tokens(model, request, affixes, call)
    if request.HasField("target"):
        target = target_tokens(model, request.target, affixes)
        await _reserve(model, source, len(target), request, call)
    else:
        most = model.manifest.limits.max_target_length + 1
        await _reserve(model, source, most, request, call)
        options = replace(default_options(model.manifest), prefix=affixes.target)
        generate = GenerateSpec(
            source=source,
            options=options,
            start_token=affixes.start_token,
            **call.spec_fields(),
        )
        answer = await EngineCall(model.engine, generate, call).finished()
        target = [*answer.best.token_ids, model.manifest.tokens.eos]
    spec = ScoreSpec(
        source=source,
        target=target,
        wants_attention=True,
        start_token=affixes.start_token,
        **call.spec_fields(),
    )
    encoder, decoder, cross = (await EngineCall(model.engine, spec, call).target_scored()).weights
    shape, read, written = model.manifest.architecture, len(source), len(target)
    return generation_pb2.AttentionResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        source_tokens=model.tokenizer.source_tokens(source),
        target_tokens=model.tokenizer.tokens(target),
        encoder=weights_of(encoder, shape.encoder_heads or shape.heads, read, read),
        decoder=weights_of(decoder, shape.heads, written, written),
        cross=weights_of(cross, shape.heads, written, read),
    )


def _affixes(model: ServedModel, request: _Request) -> Affixes:
    languages = request.source_language, request.target_language
    return affixes_of(*languages, model.manifest, model.tokenizer, section="")


async def _source_tokens(
    model: ServedModel, request: _Request, affixes: Affixes, call: ServerCall
) -> list[int]:
    options = RequestOptions(default_options(model.manifest), affixes, segmentation=None)
    reader = SourceReader(model, options)
    source = await call.read(reader.read(request.source), request, len(request.source))
    [part] = source.parts
    call.facts["source_tokens"] = len(part.tokens)
    return part.tokens


async def _reserve(
    model: ServedModel, source: list[int], num_target: int, request: Message, call: ServerCall
) -> None:
    size = AnswerSize.attended(model.manifest, model.tokenizer, len(source), num_target)
    await call.reserve(size, request)
