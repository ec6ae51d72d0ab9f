"""Implements ``seqserve.v1.GenerationService``: converts messages and delegates."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.rpc.answers import response_of
from seqserve_server.front.rpc.batch import answer_all
from seqserve_server.front.rpc.bulk import Answered, Bulk, Requests
from seqserve_server.front.rpc.calls.answer_memory import MAX_WAIT_S
from seqserve_server.front.rpc.calls.call import EngineCall
from seqserve_server.front.rpc.calls.server_call import current
from seqserve_server.front.rpc.calls.wire import encoded_list
from seqserve_server.front.rpc.options.answer_size import AnswerSize
from seqserve_server.front.rpc.options.known_options import KnownOptions
from seqserve_server.front.rpc.options.languages import Affixes, affixes_of
from seqserve_server.front.rpc.options.options import priority_of
from seqserve_server.front.rpc.options.terms import applying, for_source
from seqserve_server.front.rpc.options.validation import check_count
from seqserve_server.front.rpc.scoring import attention, score
from seqserve_server.front.rpc.tokenization import source_tokens

Context = grpc.aio.ServicerContext[Any, Any]

_OUTCOMES = generation_pb2.GenerateBatchResponse.OUTCOMES_FIELD_NUMBER

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
        # One large answer is written at a time, so that many that end together delay no other call.
        self._writing = asyncio.Lock()

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        model, call = await self._generation(request, context)
        await call.finished()
        return await self._response(model, call, request.options, request.source)

    async def generate_in_time(
        self,
        request: generation_pb2.GenerateRequest,
        context: Context,
    ) -> generation_pb2.GenerateResponse:
        """Answers one of many requests of a call; it tries again after a refusal."""
        model, call = await self._generation(request, context, is_bulk=True)
        await call.finished_in_time()
        return await self._response(model, call, request.options, request.source)

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
        response = await self._response(model, call, request.options, request.source)
        best = response.hypotheses[0]
        if rest := text.flush(best.text):
            yield _piece(rest, best.token_ids[sent_tokens:])
        yield generation_pb2.GenerateStreamResponse(result=response)

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, context: Context
    ) -> bytes:
        """Answers when every source has its outcome; until then each one is kept encoded."""
        model = self._model(request)
        check_count(len(request.sources))
        options = self._options.read(model, request.options)
        priority = priority_of(request.priority)
        record = current.get()
        size = await self.reserve(model, request.options, len(request.sources), request)
        affixes = _affixes(model, request.options)

        async def outcome(source: str) -> bytes:
            current.set(record.part(record.began_s))
            try:
                tokens = await source_tokens(model, source, affixes)
                chosen = for_source(options, request.options.terms, source)
                call = _generate(model, tokens, chosen, context, priority=priority, is_bulk=True)
                await call.finished_in_time()
                response = await self._response(model, call, request.options, source)
            except ServiceError as error:
                found = generation_pb2.Outcome(failure=record.failed(error))
            else:
                found = generation_pb2.Outcome(response=response)
            # One that failed has no response, and so no tokens.
            record.answered(found.response)
            data = found.SerializeToString()
            record.answered_one(size.each, len(data))
            return data

        outcomes = await answer_all(request.sources, outcome, model.engine.slots)
        return encoded_list(_OUTCOMES, outcomes)

    async def GenerateBulk(
        self, requests: Requests, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Answers each source as soon as it is done; reads on only while few are under way."""
        record = current.get()

        async def answer(request: generation_pb2.GenerateRequest) -> Answered:
            part = record.request(time.monotonic())
            current.set(part)
            try:
                # A refused request keeps its place among the few, so the caller is not read from:
                # back-pressure is the right effect of a full queue. After a failure the caller
                # would only send the request again.
                response = await self.generate_in_time(request, context)
            except BaseException:
                part.free()
                raise
            finally:
                part.release()
                record.stands_for(part)
            return Answered(response, part.free)

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
        return await score(self._model(request), request, context)

    async def Attention(
        self, request: generation_pb2.AttentionRequest, context: Context
    ) -> generation_pb2.AttentionResponse:
        """Returns the attention of a target, which is generated if the request has none."""
        return await attention(self._model(request), request, context)

    async def _generation(
        self,
        request: generation_pb2.GenerateRequest,
        context: Context,
        *,
        streamed: bool = False,
        is_bulk: bool = False,
    ) -> tuple[ServedModel, EngineCall]:
        """Prepares a request; one of many of a call is not refused here: it would come back."""
        model = self._model(request)
        priority = priority_of(request.priority)
        if not is_bulk:
            # First, so that a refusal costs little.
            record = current.get()
            model.engine.refusals.check(QueueKey(record.client_id, record.connection, priority))
        options = self._options.read(model, request.options)
        source = await source_tokens(model, request.source, _affixes(model, request.options))
        options = for_source(options, request.options.terms, request.source)
        size = _size(model, options, request.options, len(source))
        max_wait_s = math.inf if is_bulk else min(MAX_WAIT_S, options.time_limit_s)
        await current.get().reserve(size, request, max_wait_s=max_wait_s)
        return model, _generate(
            model, source, options, context, streamed=streamed, priority=priority, is_bulk=is_bulk
        )

    async def reserve(
        self,
        model: ServedModel,
        options: generation_pb2.GenerationOptions,
        sources: int,
        request: Message,
    ) -> AnswerSize:
        """Waits until there is memory for the answers to all sources of a call; gives their size.

        Raises:
            ServiceError: As :meth:`ServerCall.reserve`, or an option is wrong.
        """
        decoding = self._options.read(model, options)
        longest = model.manifest.limits.max_source_length
        size = _size(model, decoding, options, longest, sources)
        await current.get().reserve(size, request, max_wait_s=math.inf)
        return size

    async def _response(
        self,
        model: ServedModel,
        call: EngineCall,
        options: generation_pb2.GenerationOptions,
        source: str,
    ) -> generation_pb2.GenerateResponse:
        is_large = options.return_attention or options.return_top_tokens
        async with self._writing if is_large else nullcontext():
            response = await response_of(
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

    def _model(self, request: _Request) -> ServedModel:
        return current.get().resolve(self._repository, request.model, request.version)


def _affixes(model: ServedModel, options: generation_pb2.GenerationOptions) -> Affixes:
    languages = options.source_language, options.target_language
    return affixes_of(*languages, model.manifest, model.tokenizer)


def _piece(text: str, token_ids: list[int]) -> generation_pb2.GenerateStreamResponse:
    piece = generation_pb2.Piece(text=text, token_ids=token_ids)
    return generation_pb2.GenerateStreamResponse(piece=piece)


def _covering(model: ServedModel, tokens: list[int], text: str, min_count: int) -> int:
    """Counts the leading tokens whose text begins with ``text``; ``min_count`` or more."""
    for count in range(min_count, len(tokens)):
        if model.tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)


def _generate(
    model: ServedModel,
    source: list[int],
    options: DecodingOptions,
    context: Context,
    **more: Any,
) -> EngineCall:
    fields = current.get().spec_fields(context) | more
    if more.get("is_bulk"):
        # A call of many requests is a flow of its own, which the client's other calls pass.
        fields["flow_id"] = fields["call_id"]
    return EngineCall(model.engine, GenerateSpec(source=source, options=options, **fields))


def _size(
    model: ServedModel,
    options: DecodingOptions,
    given: generation_pb2.GenerationOptions,
    source_tokens: int,
    sources: int = 1,
) -> AnswerSize:
    """Bounds the answers to requests with these options, converted and as they were given."""
    return AnswerSize.generated(
        options,
        source_tokens=source_tokens,
        token_bytes=model.tokenizer.token_bytes,
        term_bytes=[term.ByteSize() for term in given.terms],
        sources=sources,
    )
