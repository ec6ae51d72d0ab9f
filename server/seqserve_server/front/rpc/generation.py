"""Implements ``seqserve.v1.GenerationService``: converts messages and delegates."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

import grpc

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec, ScoreSpec
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.rpc.answers import response_of, weights_of
from seqserve_server.front.rpc.batch import answer_all
from seqserve_server.front.rpc.bulk import Bulk, Requests
from seqserve_server.front.rpc.calls.call import MAX_REFUSALS, EngineCall
from seqserve_server.front.rpc.calls.server_call import current
from seqserve_server.front.rpc.options.known_options import KnownOptions
from seqserve_server.front.rpc.options.options import default_options, priority_of
from seqserve_server.front.rpc.options.terms import applying, for_source
from seqserve_server.front.rpc.options.validation import (
    check_count,
    check_source,
    check_source_tokens,
    check_target,
    check_target_tokens,
)

Context = grpc.aio.ServicerContext[Any, Any]

# A longer text is tokenised in a thread, so that other calls need not wait for it.
_INLINE_CHARACTERS = 1024

_Request = (
    generation_pb2.GenerateRequest
    | generation_pb2.GenerateBatchRequest
    | generation_pb2.ScoreRequest
    | generation_pb2.AttentionRequest
)


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out."""

    def __init__(self, repository: Repository, draining: asyncio.Event) -> None:
        """Takes the models, and the event after which no new requests are read."""
        self._repository = repository
        self._draining = draining
        self._options = KnownOptions()

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        model, call = await self._generation(request, context)
        await call.finished()
        return _response(model, call, request.options, request.source)

    async def generate_in_time(
        self,
        request: generation_pb2.GenerateRequest,
        context: Context,
        max_refusals: float = MAX_REFUSALS,
    ) -> generation_pb2.GenerateResponse:
        """Answers one of many requests of a call; it tries again after a refusal."""
        model, call = await self._generation(request, context, patient=True)
        await call.finished_in_time(max_refusals)
        return _response(model, call, request.options, request.source)

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        # Tokens that may still be replaced are not streamed.
        streamed = not request.options.replace_unknowns
        model, call = await self._generation(request, context, streamed=streamed)
        stops = cast(GenerateSpec, call.spec).options.stops
        text = model.tokenizer.stream(stops)
        generated: list[int] = []
        sent_text, sent_tokens = "", 0
        async with aclosing(call.progress()) as progress:
            async for tokens in progress:
                generated += tokens
                if piece := text.push(tokens):
                    sent_text += piece
                    # A stop sequence may yet cut off the tokens after the text.
                    end = len(generated)
                    if stops:
                        end = _covering(model, generated, sent_text, sent_tokens)
                    yield _piece(piece, generated[sent_tokens:end])
                    sent_tokens = end
        response = _response(model, call, request.options, request.source)
        best = response.hypotheses[0]
        if rest := text.flush(best.text):
            yield _piece(rest, best.token_ids[sent_tokens:])
        yield generation_pb2.GenerateStreamResponse(result=response)

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, context: Context
    ) -> generation_pb2.GenerateBatchResponse:
        """Answers when every source has its outcome."""
        model = self._model(request)
        check_count(len(request.sources))
        options = self._options.read(model, request.options)
        priority = priority_of(request.priority)
        record = current.get()

        async def outcome(source: str) -> generation_pb2.Outcome:
            current.set(record.part(record.began_s))
            try:
                tokens = await _source(model, source)
                chosen = for_source(options, request.options.terms, source)
                call = _generate(model, tokens, chosen, context, priority=priority)
                await call.finished_in_time()
                response = _response(model, call, request.options, source)
            except ServiceError as error:
                return generation_pb2.Outcome(failure=record.failed(error))
            return generation_pb2.Outcome(response=response)

        outcomes = await answer_all(request.sources, outcome, model.engine.slots)
        for one in outcomes:
            # One that failed has no response, and so no tokens.
            record.answered(one.response)
        return generation_pb2.GenerateBatchResponse(outcomes=outcomes)

    async def GenerateBulk(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Answers each source as soon as it is done; reads on only while few are under way."""
        record = current.get()

        async def answer(
            request: generation_pb2.GenerateRequest,
        ) -> generation_pb2.GenerateResponse:
            part = record.request(time.monotonic())
            current.set(part)
            try:
                # A refused request keeps its place among the few, so the caller is not read from:
                # back-pressure is the right effect of a full queue. After a failure the caller
                # would only send the request again.
                return await self.generate_in_time(request, context, max_refusals=math.inf)
            finally:
                part.release()
                # Requests may name several models; the last one stands for the call.
                record.model = part.model or record.model

        # As many as can run: they fill the batch, and requests of others need not wait behind.
        slots = max((model.engine.slots for model in self._repository.models()), default=1)
        bulk = Bulk(answer, slots, self._draining)
        async with aclosing(bulk.responses(requests)) as responses:
            async for response in responses:
                record.answered(response.outcome.response)
                yield response

    async def Score(
        self, request: generation_pb2.ScoreRequest, context: Context
    ) -> generation_pb2.ScoreResponse:
        """Scores a given target."""
        model = self._model(request)
        source = await _source(model, request.source)
        target = await _target(model, request.target)
        spec = ScoreSpec(source=source, target=target, **_of_call(context))
        scores = (await EngineCall(model.engine, spec).target_scored()).token_scores
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

    async def Attention(
        self, request: generation_pb2.AttentionRequest, context: Context
    ) -> generation_pb2.AttentionResponse:
        """Returns the attention of a target, which is generated if the request has none."""
        model = self._model(request)
        source = await _source(model, request.source)
        if request.HasField("target"):
            target = await _target(model, request.target)
        else:
            options = default_options(model.manifest)
            answer = await _generate(model, source, options, context).finished()
            target = [*answer.best.token_ids, model.manifest.tokens.eos]
        spec = ScoreSpec(source=source, target=target, wants_attention=True, **_of_call(context))
        encoder, decoder, cross = (await EngineCall(model.engine, spec).target_scored()).weights
        heads, read, written = model.manifest.architecture.heads, len(source), len(target)
        return generation_pb2.AttentionResponse(
            model=model.manifest.name,
            version=model.manifest.version,
            source_tokens=model.tokenizer.tokens(source),
            target_tokens=model.tokenizer.tokens(target),
            encoder=weights_of(encoder, heads, read, read),
            decoder=weights_of(decoder, heads, written, written),
            cross=weights_of(cross, heads, written, read),
        )

    async def _generation(
        self,
        request: generation_pb2.GenerateRequest,
        context: Context,
        *,
        streamed: bool = False,
        patient: bool = False,
    ) -> tuple[ServedModel, EngineCall]:
        """Prepares a request; a patient one is not refused here, because it will try again."""
        model = self._model(request)
        priority = priority_of(request.priority)
        if not patient:
            # First, so that a refusal costs little.
            model.engine.refusals.check(QueueKey(current.get().client_id, priority))
        options = self._options.read(model, request.options)
        source = await _source(model, request.source)
        options = for_source(options, request.options.terms, request.source)
        return model, _generate(
            model, source, options, context, streamed=streamed, priority=priority
        )

    def _model(self, request: _Request) -> ServedModel:
        return current.get().resolve(self._repository, request.model, request.version)


async def _source(model: ServedModel, text: str) -> list[int]:
    check_source(text, model.manifest)
    tokens = await _tokens(model.tokenizer.encode, text)
    check_source_tokens(tokens, model.manifest)
    current.get().facts["source_tokens"] = len(tokens)
    return tokens


async def _target(model: ServedModel, text: str) -> list[int]:
    check_target(text, model.manifest)
    tokens = await _tokens(model.tokenizer.encode_target, text)
    check_target_tokens(tokens, model.manifest)
    return tokens


async def _tokens(encode: Callable[[str], list[int]], text: str) -> list[int]:
    if len(text) <= _INLINE_CHARACTERS:
        return encode(text)
    return await asyncio.to_thread(encode, text)


def _piece(text: str, token_ids: list[int]) -> generation_pb2.GenerateStreamResponse:
    piece = generation_pb2.Piece(text=text, token_ids=token_ids)
    return generation_pb2.GenerateStreamResponse(piece=piece)


def _covering(model: ServedModel, tokens: list[int], text: str, min_count: int) -> int:
    """Counts the leading tokens whose text begins with ``text``; ``min_count`` or more."""
    for count in range(min_count, len(tokens)):
        if model.tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)


def _of_call(context: Context) -> dict[str, Any]:
    """Collects the fields of a spec that come from the gRPC call."""
    record, remaining_s = current.get(), context.time_remaining()
    return {
        "arrived_s": record.began_s,
        "deadline_s": None if remaining_s is None else time.monotonic() + remaining_s,
        "client_id": record.client_id,
        "call_id": record.request_id,
    }


def _generate(
    model: ServedModel,
    source: list[int],
    options: DecodingOptions,
    context: Context,
    **more: Any,
) -> EngineCall:
    spec = GenerateSpec(source=source, options=options, **_of_call(context), **more)
    return EngineCall(model.engine, spec)


def _response(
    model: ServedModel, call: EngineCall, options: generation_pb2.GenerationOptions, source: str
) -> generation_pb2.GenerateResponse:
    response = response_of(
        model,
        call.spec.source,
        call.timeline,
        call.result(),
        terms=applying(options.terms, source),
        replaces=options.replace_unknowns,
        attends=options.return_attention,
    )
    current.get().facts.update(
        generated_tokens=response.generated_tokens,
        queue_ms=response.timings.queue_ms,
        first_token_ms=response.timings.first_token_ms,
    )
    return response
