"""``seqserve.v1.GenerationService``: converts and delegates."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Finished
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import Priority
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
        """Takes the models, and what happens when no new requests are to be read."""
        self._repository = repository
        self._draining = draining
        self._options = KnownOptions()

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        model, call = await self._generation(request, context)
        return _response(model, call, await call.finished(), request.options, request.source)

    async def generate_in_time(
        self,
        request: generation_pb2.GenerateRequest,
        context: Context,
        max_refusals: float = MAX_REFUSALS,
    ) -> generation_pb2.GenerateResponse:
        """Does the same for one of many requests of a call, which comes back if it is refused."""
        model, call = await self._generation(request, context, patient=True)
        answer = await call.finished_in_time(max_refusals)
        return _response(model, call, answer, request.options, request.source)

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        # A word that may still be replaced is shown to nobody.
        streamed = not request.options.replace_unknowns
        model, call = await self._generation(request, context, streamed=streamed)
        stops = call.request.options.stops
        text = model.tokenizer.stream(stops)
        told: list[int] = []
        sent, shown = "", 0
        async with aclosing(call.progress()) as progress:
            async for tokens in progress:
                told += tokens
                if piece := text.push(tokens):
                    sent += piece
                    # Those behind may yet be cut off.
                    covered = _covering(model, told, sent, shown) if stops else len(told)
                    yield _piece(piece, told[shown:covered])
                    shown = covered
        response = _response(model, call, call.result(), request.options, request.source)
        best = response.hypotheses[0]
        if rest := text.flush(best.text):
            yield _piece(rest, best.token_ids[shown:])
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
                call = _call(model, tokens, chosen, context, priority=priority)
                answer = await call.finished_in_time()
                response = _response(model, call, answer, request.options, source)
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
        """Answers each source as soon as it is done, and reads on only while few are under way."""
        record = current.get()

        async def answer(
            request: generation_pb2.GenerateRequest,
        ) -> generation_pb2.GenerateResponse:
            part = record.request(time.monotonic())
            current.set(part)
            try:
                # As it keeps its place among the few, the caller is not read from, which is what a
                # full queue is to bring about; one who is told of a failure only sends it again.
                return await self.generate_in_time(request, context, max_refusals=math.inf)
            finally:
                part.release()
                # They may name several; the last one stands for the call.
                record.model = part.model or record.model

        # As many as can run: they fill the batch, and others need not queue behind them.
        most = max((model.engine.slots for model in self._repository.models()), default=1)
        bulk = Bulk(answer, most, self._draining)
        async with aclosing(bulk.responses(requests)) as responses:
            async for response in responses:
                record.answered(response.outcome.response)
                yield response

    async def Score(
        self, request: generation_pb2.ScoreRequest, context: Context
    ) -> generation_pb2.ScoreResponse:
        """Scores a known target."""
        model = self._model(request)
        source = await _source(model, request.source)
        target = await _target(model, request.target)
        call = _call(model, source, default_options(model.manifest), context, target=target)
        scores = (await call.target_scored()).token_scores
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
        """Shows what a target attended to; one that is not given is generated."""
        model = self._model(request)
        options = default_options(model.manifest)
        source = await _source(model, request.source)
        if request.HasField("target"):
            target = await _target(model, request.target)
        else:
            answer = await _call(model, source, options, context).finished()
            target = [*answer.best.token_ids, model.manifest.tokens.eos]
        call = _call(
            model,
            source,
            default_options(model.manifest),
            context,
            target=target,
            wants_attention=True,
        )
        encoder, decoder, cross = (await call.target_scored()).weights
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
        """Prepares a request; one that is patient comes back where it is refused."""
        model = self._model(request)
        priority = priority_of(request.priority)
        if not patient:
            # Before anything is done for it.
            model.engine.promises.check(QueueKey(current.get().client_id, priority))
        options = self._options.read(model, request.options)
        source = await _source(model, request.source)
        options = for_source(options, request.options.terms, request.source)
        call = _call(model, source, options, context, streamed=streamed, priority=priority)
        return model, call

    def _model(self, request: _Request) -> ServedModel:
        return current.get().resolve(self._repository, request.model, request.version)


async def _source(model: ServedModel, text: str) -> list[int]:
    check_source(text, model.manifest)
    tokens = await _tokens(model, text)
    check_source_tokens(tokens, model.manifest)
    current.get().facts["source_tokens"] = len(tokens)
    return tokens


async def _target(model: ServedModel, text: str) -> list[int]:
    check_target(text, model.manifest)
    tokens = await _tokens(model, text)
    check_target_tokens(tokens, model.manifest)
    return tokens


async def _tokens(model: ServedModel, text: str) -> list[int]:
    if len(text) <= _INLINE_CHARACTERS:
        return model.tokenizer.encode(text)
    return await asyncio.to_thread(model.tokenizer.encode, text)


def _piece(text: str, token_ids: list[int]) -> generation_pb2.GenerateStreamResponse:
    piece = generation_pb2.Piece(text=text, token_ids=token_ids)
    return generation_pb2.GenerateStreamResponse(piece=piece)


def _covering(model: ServedModel, tokens: list[int], text: str, least: int) -> int:
    """Counts the tokens that the beginning of their text comes from, ``least`` of them or more."""
    for count in range(least, len(tokens)):
        if model.tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)


def _call(
    model: ServedModel,
    source: list[int],
    options: DecodingOptions,
    context: Context,
    *,
    streamed: bool = False,
    target: list[int] | None = None,
    wants_attention: bool = False,
    priority: Priority = Priority.NORMAL,
) -> EngineCall:
    began_s = current.get().began_s
    remaining_s = context.time_remaining()
    elapsed_s = time.monotonic() - began_s
    return EngineCall(
        model.engine,
        source,
        options,
        arrived_s=began_s,
        remaining_s=None if remaining_s is None else remaining_s + elapsed_s,
        streamed=streamed,
        target=target,
        wants_attention=wants_attention,
        caller=current.get().client_id,
        priority=priority,
    )


def _response(
    model: ServedModel,
    call: EngineCall,
    answer: Finished,
    options: generation_pb2.GenerationOptions,
    source: str,
) -> generation_pb2.GenerateResponse:
    response = response_of(
        model,
        call.request,
        answer,
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
