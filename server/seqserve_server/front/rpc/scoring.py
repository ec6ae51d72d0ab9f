"""Answers Score and Attention, which run a given target through the model."""

from __future__ import annotations

from dataclasses import replace

from google.protobuf.message import Message

from seqserve.v1 import generation_pb2
from seqserve_server.contract.request import GenerateSpec, ScoreSpec
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.answers import weights_of
from seqserve_server.front.rpc.calls.call import EngineCall
from seqserve_server.front.rpc.calls.server_call import current
from seqserve_server.front.rpc.calls.wire import Context
from seqserve_server.front.rpc.options.answer_size import AnswerSize
from seqserve_server.front.rpc.options.languages import Affixes, affixes_of
from seqserve_server.front.rpc.options.options import default_options
from seqserve_server.front.rpc.tokenization import source_tokens, target_tokens

_Request = generation_pb2.ScoreRequest | generation_pb2.AttentionRequest


async def score(
    model: ServedModel, request: generation_pb2.ScoreRequest, context: Context
) -> generation_pb2.ScoreResponse:
    """Scores a given target."""
    affixes = _affixes(model, request)
    source = await source_tokens(model, request.source, affixes)
    target = await target_tokens(model, request.target, affixes)
    size = AnswerSize.scored(len(source), len(target), model.tokenizer.token_bytes)
    call = current.get()
    await call.reserve(size, request)
    spec = ScoreSpec(
        source=source,
        target=target,
        start_token=affixes.start_token,
        **call.spec_fields(context),
    )
    scores = (await EngineCall(model.engine, spec).target_scored()).token_scores
    # What the model wants first is given, like the prefix of a generated text.
    given = len(affixes.target)
    target, scores = target[given:], scores[given:]
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
    model: ServedModel, request: generation_pb2.AttentionRequest, context: Context
) -> generation_pb2.AttentionResponse:
    """Returns the attention of a target, which is generated if the request has none."""
    call, affixes = current.get(), _affixes(model, request)
    source = await source_tokens(model, request.source, affixes)
    if request.HasField("target"):
        target = await target_tokens(model, request.target, affixes)
        await _reserve(model, source, len(target), request)
    else:
        most = model.manifest.limits.max_target_length + 1
        await _reserve(model, source, most, request)
        options = replace(default_options(model.manifest), prefix=affixes.target)
        asked = GenerateSpec(
            source=source,
            options=options,
            start_token=affixes.start_token,
            **call.spec_fields(context),
        )
        answer = await EngineCall(model.engine, asked).finished()
        target = [*answer.best.token_ids, model.manifest.tokens.eos]
    spec = ScoreSpec(
        source=source,
        target=target,
        wants_attention=True,
        start_token=affixes.start_token,
        **call.spec_fields(context),
    )
    encoder, decoder, cross = (await EngineCall(model.engine, spec).target_scored()).weights
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
    return affixes_of(
        request.source_language,
        request.target_language,
        model.manifest,
        model.tokenizer,
        section="",
    )


async def _reserve(
    model: ServedModel, source: list[int], num_target: int, request: Message
) -> None:
    size = AnswerSize.attended(model.manifest, model.tokenizer, len(source), num_target)
    await current.get().reserve(size, request)
