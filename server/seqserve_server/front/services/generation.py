"""Implements ``seqserve.v1.GenerationService``: converts messages and delegates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.answer.answers import answers_of
from seqserve_server.front.answer.bulk import Answered, Bulk, Requests
from seqserve_server.front.answer.pivot import PivotAnswer, Windows
from seqserve_server.front.answer.source_answer import SourceAnswer
from seqserve_server.front.answer.window import Window
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.wire import encoded_list
from seqserve_server.front.models.repository import Repository, ServedModel
from seqserve_server.front.request.parts import Source, check_count
from seqserve_server.front.request.route import Request, Route
from seqserve_server.front.services.scoring import attention, detokenize, score, tokenize

_OUTCOMES = generation_pb2.GenerateBatchResponse.OUTCOMES_FIELD_NUMBER


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out."""

    def __init__(self, repository: Repository, draining: asyncio.Event) -> None:
        """Takes the models, and the event after which no new requests are read."""
        self._repository = repository
        self._draining = draining

    async def Generate(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        response = await (await self._answer(request, call)).whole()
        call.note(response)
        return response

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        answer = await self._answer(request, call)
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                yield generation_pb2.GenerateStreamResponse(piece=piece)
        response = answer.response()
        call.note(response)
        yield generation_pb2.GenerateStreamResponse(result=response)

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, call: ServerCall
    ) -> bytes:
        """Answers when every source has its outcome; until then each one is kept encoded."""
        route = self._route(request, call)
        check_count(len(request.sources))
        answers = await answers_of(request, route, call)
        max_bytes = answers.answer_size.each

        async def outcome(source: Source | ServiceError) -> bytes:
            try:
                response = await answers.to(source).whole()
                outcome = generation_pb2.Outcome(response=response)
            except ServiceError as error:
                outcome = generation_pb2.Outcome(failure=call.failed(error))
            # A source that failed has no response, and so no tokens.
            call.answered(outcome.response)
            data = outcome.SerializeToString()
            if isinstance(source, Source):
                call.answered_one(len(source.parts) * max_bytes, len(data))
            return data

        outcomes = Window(route.slots).in_order(answers.sources, outcome)
        async with aclosing(outcomes):
            return encoded_list(_OUTCOMES, [data async for data in outcomes])

    async def GenerateBulk(
        self, requests: Requests, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Answers each source as soon as it is done; reads on only while few are under way."""
        # As many as can run: they fill the batch, and requests of others need not wait behind.
        slots = max((model.engine.capacity.slots for model in self._repository.models()), default=1)
        windows = Windows.of(slots)

        async def answer(request: generation_pb2.GenerateRequest) -> Answered:
            part = call.request(time.monotonic())
            try:
                # A refused request keeps its place among the few, so the caller is not read from:
                # back-pressure is the right effect of a full queue. After a failure the caller
                # would only send the request again.
                route = self._route(request, part)
                answers = await answers_of(request, route, part, windows, is_bulk=True)
                response = await answers.to(answers.sources[0]).whole()
            except BaseException:
                part.free()
                raise
            finally:
                part.release()
                call.stands_for(part)
            return Answered(response, part.free)

        bulk = Bulk(call, answer, slots, self._draining)
        async with aclosing(bulk.responses(requests)) as responses:
            async for response in responses:
                call.answered(response.outcome.response)
                yield response

    async def Score(
        self, request: generation_pb2.ScoreRequest, call: ServerCall
    ) -> generation_pb2.ScoreResponse:
        """Scores a given target."""
        return await score(self._model(request, call), request, call)

    async def Attention(
        self, request: generation_pb2.AttentionRequest, call: ServerCall
    ) -> generation_pb2.AttentionResponse:
        """Returns the attention of a target, which is generated if the request has none."""
        return await attention(self._model(request, call), request, call)

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, call: ServerCall
    ) -> generation_pb2.TokenizeResponse:
        """Divides a text into tokens."""
        return await tokenize(self._model(request, call), request, call)

    async def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, call: ServerCall
    ) -> generation_pb2.DetokenizeResponse:
        """Joins tokens to a text."""
        return await detokenize(self._model(request, call), request, call)

    async def _answer(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> SourceAnswer | PivotAnswer:
        """Prepares the answer to a call of one source."""
        answers = await answers_of(request, self._route(request, call), call)
        answer = answers.to(answers.sources[0])
        call.facts["source_tokens"] = answer.source_tokens
        return answer

    def _route(self, request: Request, call: ServerCall) -> Route:
        """Finds the model that a request names, or else those of its languages, or the default."""
        return Route.of(request, self._repository, call)

    def _model(self, request: Request, call: ServerCall) -> ServedModel:
        """Finds the model of a call that has no use for two."""
        return self._route(request, call).only()
