"""Implements ``seqserve.v1.GenerationService``: converts messages and delegates."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import grpc
from google.protobuf.message import Message

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.request import GenerateSpec
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.answer.bulk import Answered, Bulk, Requests
from seqserve_server.front.answer.engine_call import EngineCall
from seqserve_server.front.answer.joined import SegmentedAnswer
from seqserve_server.front.answer.window import answer_all
from seqserve_server.front.call.server_call import current
from seqserve_server.front.call.wire import encoded_list
from seqserve_server.front.engine_client.refusals import QueueKey
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.request.options import KnownOptions, priority_of
from seqserve_server.front.request.parts import Document, check_count
from seqserve_server.front.request.prepared import Asked, Text, answer_size, count_of
from seqserve_server.front.services.scoring import attention, detokenize, score, tokenize

Context = grpc.aio.ServicerContext[Any, Any]

_OUTCOMES = generation_pb2.GenerateBatchResponse.OUTCOMES_FIELD_NUMBER

_Request = (
    generation_pb2.GenerateRequest
    | generation_pb2.GenerateBatchRequest
    | generation_pb2.ScoreRequest
    | generation_pb2.AttentionRequest
    | generation_pb2.TokenizeRequest
    | generation_pb2.DetokenizeRequest
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
        asked = self._asked(request, context)
        if document := await asked.document(request.source):
            return await (await self._segmented(asked, document, request)).whole()
        call = await self._call(asked, request)
        await call.finished()
        return await asked.response(call, request.source)

    async def generate_in_time(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        """Answers one of many requests of a call; it tries again after a refusal."""
        asked = self._asked(request, context, is_bulk=True)
        if document := await asked.document(request.source):
            return await (await self._segmented(asked, document, request, is_bulk=True)).whole()
        call = await self._call(asked, request, is_bulk=True)
        await call.finished_in_time()
        return await asked.response(call, request.source)

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        asked = self._asked(request, context)
        document = await asked.document(request.source)
        if document is None:
            messages = self._streamed(asked, request)
        elif document.only is None:
            messages = _by_segment(await self._segmented(asked, document, request))
        else:
            messages = self._of_one_segment(asked, document, request)
        async with aclosing(messages):
            async for message in messages:
                yield message

    async def _streamed(
        self, asked: Asked, request: generation_pb2.GenerateRequest
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as it is decoded, then the answer to a source."""
        # Tokens that may still be replaced are not streamed.
        streamed = not request.options.replace_unknowns
        call = await self._call(asked, request, streamed=streamed)
        tokenizer = asked.model.tokenizer
        stops = cast(GenerateSpec, call.spec).options.stops
        text = tokenizer.stream(stops)
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
                        end = _covering(tokenizer, generated, sent_text, sent_tokens)
                    yield _piece(piece, generated[sent_tokens:end])
                    sent_tokens = end
        response = await asked.response(call, request.source)
        best = response.hypotheses[0]
        if rest := text.flush(best.text):
            yield _piece(rest, best.token_ids[sent_tokens:])
        yield generation_pb2.GenerateStreamResponse(result=response)

    async def _of_one_segment(
        self, asked: Asked, document: Document, request: generation_pb2.GenerateRequest
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends the text of a lone segment as it is decoded, with the white space around it."""
        assert document.only is not None
        segmented = await self._segmented(asked, document, request)
        begin = document.only.span.begin
        if begin:
            yield _piece(document.text[:begin], [])
        part = generation_pb2.GenerateRequest()
        part.CopyFrom(request)
        part.source = document.source_of(document.only)
        async with aclosing(self._streamed(asked, part)) as messages:
            async for message in messages:
                if message.HasField("piece"):
                    yield message
                else:
                    segmented.add(document.only, message.result)
        if rest := segmented.end():
            yield _piece(rest, [])
        yield generation_pb2.GenerateStreamResponse(result=segmented.response())

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, context: Context
    ) -> bytes:
        """Answers when every source has its outcome; until then each one is kept encoded."""
        asked = self._asked(request, context, is_bulk=True)
        check_count(len(request.sources))
        record, slots = current.get(), asked.model.engine.slots
        record.room = asyncio.Semaphore(slots)
        texts = await asked.divided(request.sources)
        size = await asked.reserve_for(texts, request, is_bulk=True)

        async def outcome(text: Text) -> bytes:
            current.set(record.part(record.began_s))
            try:
                if isinstance(text, ServiceError):
                    raise text
                if isinstance(text, Document):
                    response = await asked.segmented(text, is_bulk=True).whole()
                else:
                    response = await asked.answer(text)
            except ServiceError as error:
                found = generation_pb2.Outcome(failure=record.failed(error))
            else:
                found = generation_pb2.Outcome(response=response)
            # One that failed has no response, and so no tokens.
            record.answered(found.response)
            data = found.SerializeToString()
            record.answered_one(count_of(text) * size.each, len(data))
            return data

        outcomes = await answer_all(texts, outcome, slots)
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
        record.room = asyncio.Semaphore(slots)
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

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: Context
    ) -> generation_pb2.TokenizeResponse:
        """Divides a text into tokens."""
        return await tokenize(self._model(request), request)

    async def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, context: Context
    ) -> generation_pb2.DetokenizeResponse:
        """Joins tokens to a text."""
        return await detokenize(self._model(request), request)

    async def reserve(
        self,
        model: ServedModel,
        options: generation_pb2.GenerationOptions,
        sources: int,
        request: Message,
    ) -> None:
        """Waits until there is memory for the answers to all sources of a call.

        Raises:
            ServiceError: As :meth:`ServerCall.reserve`, or an option is wrong.
        """
        decoding = self._options.read(model, options)
        size = answer_size(model, options, decoding, sources=sources)
        await current.get().reserve(size, request, max_wait_s=math.inf)

    def _asked(
        self,
        request: generation_pb2.GenerateRequest | generation_pb2.GenerateBatchRequest,
        context: Context,
        *,
        is_bulk: bool = False,
    ) -> Asked:
        """Reads what a request asks for; one of many of a call is not refused: it would come back.

        Raises:
            ServiceError: There is no such model, its queue is full, or an option is wrong.
        """
        model = self._model(request)
        priority = priority_of(request.priority)
        if not is_bulk:
            # First, so that a refusal costs little.
            record = current.get()
            model.engine.refusals.check(QueueKey(record.client_id, record.connection, priority))
        return Asked(
            model=model,
            given=request.options,
            options=self._options.read(model, request.options),
            priority=priority,
            context=context,
            writing=self._writing,
        )

    async def _call(
        self,
        asked: Asked,
        request: generation_pb2.GenerateRequest,
        *,
        streamed: bool = False,
        is_bulk: bool = False,
    ) -> EngineCall:
        """Prepares the request for a source, and waits until there is memory for its answer."""
        call = await asked.call(request.source, streamed=streamed, is_bulk=is_bulk)
        await asked.reserve(asked.size_of(call), request, is_bulk=is_bulk)
        return call

    async def _segmented(
        self,
        asked: Asked,
        document: Document,
        request: generation_pb2.GenerateRequest,
        *,
        is_bulk: bool = False,
    ) -> SegmentedAnswer:
        """Waits until there is memory for the answer to a text in segments."""
        await asked.reserve_for([document], request, is_bulk=is_bulk)
        return asked.segmented(document, is_bulk=is_bulk)

    def _model(self, request: _Request) -> ServedModel:
        return current.get().resolve(self._repository, request.model, request.version)


async def _by_segment(
    segmented: SegmentedAnswer,
) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
    """Sends the text of each segment as soon as all before it are answered."""
    async with aclosing(segmented.pieces()) as pieces:
        async for piece in pieces:
            yield _piece(piece, [])
    yield generation_pb2.GenerateStreamResponse(result=segmented.response())


def _piece(text: str, token_ids: list[int]) -> generation_pb2.GenerateStreamResponse:
    piece = generation_pb2.Piece(text=text, token_ids=token_ids)
    return generation_pb2.GenerateStreamResponse(piece=piece)


def _covering(tokenizer: Tokenizer, tokens: list[int], text: str, min_count: int) -> int:
    """Counts the leading tokens whose text begins with ``text``; ``min_count`` or more."""
    for count in range(min_count, len(tokens)):
        if tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)
