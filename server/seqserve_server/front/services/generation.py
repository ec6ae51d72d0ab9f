"""Implements ``seqserve.v1.GenerationService``: converts messages and delegates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.front.answer.answers import answers_of
from seqserve_server.front.answer.bulk import Answered, Bulk, Requests
from seqserve_server.front.answer.pivot import PivotAnswer
from seqserve_server.front.answer.source_answer import SourceAnswer
from seqserve_server.front.answer.window import Window, Windows
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.wire import encoded_list
from seqserve_server.front.glossaries.folder import Glossaries
from seqserve_server.front.models.loaded_model import ServedModel
from seqserve_server.front.models.repository import Repository
from seqserve_server.front.request.detection import LanguageDetector
from seqserve_server.front.request.parts import Source, check_count
from seqserve_server.front.request.route import Request, Route
from seqserve_server.front.services.scoring import attention, score
from seqserve_server.front.services.tokens import MAX_CHARACTERS, detokenize, tokenize

_MIN_CONFIDENCE = 0.001
_MAX_LANGUAGES = 512
_OUTCOMES = generation_pb2.GenerateBatchResponse.OUTCOMES_FIELD_NUMBER


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out."""

    def __init__(
        self,
        repository: Repository,
        detector: LanguageDetector,
        glossaries: Glossaries,
        draining: asyncio.Event,
    ) -> None:
        """Takes the models, what detects languages, the glossaries, and the event after which no
        new requests are read."""
        self._repository, self._detector, self._glossaries = repository, detector, glossaries
        self._draining = draining

    async def Generate(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        route, answer = await self._lone_answer(request, call)
        response = route.with_detected_language(await answer.whole())
        call.note_answer(response)
        return response

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        route, answer = await self._lone_answer(request, call)
        async with aclosing(answer.pieces()) as pieces:
            async for piece in pieces:
                yield generation_pb2.GenerateStreamResponse(piece=piece)
        response = route.with_detected_language(answer.response())
        call.note_answer(response)
        yield generation_pb2.GenerateStreamResponse(result=response)

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, call: ServerCall
    ) -> bytes:
        """Answers when every source has its outcome; until then each one is kept encoded."""
        route = await self._route(request, call)
        check_count(len(request.sources))
        answers = await answers_of(request, route, call)
        max_bytes = answers.answer_size.each

        async def outcome(source: Source | ServiceError) -> bytes:
            try:
                response = route.with_detected_language(await answers.to(source).whole())
                outcome = generation_pb2.Outcome(response=response)
            except ServiceError as error:
                outcome = generation_pb2.Outcome(failure=call.failed(error))
            # A source that failed has no response, and so no tokens.
            call.count_answer(outcome.response)
            data = outcome.SerializeToString()
            if isinstance(source, Source):
                call.shrink_one(len(source.parts) * max_bytes, len(data))
            return data

        outcomes = Window(route.slots).in_order(answers.sources, outcome)
        async with aclosing(outcomes):
            return encoded_list(_OUTCOMES, [data async for data in outcomes])

    async def GenerateBulk(
        self, requests: Requests, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Answers each source as soon as it is done; reads on only while few are under way."""
        slots = max((model.engine.capacity.slots for model in self._repository.models()), default=1)
        windows = Windows.of(slots)

        async def answer(request: generation_pb2.GenerateRequest) -> Answered:
            request_call = call.begin_request(time.monotonic())
            try:
                # A refused request keeps its place among the few, so the caller is not read from:
                # back-pressure is the right effect of a full queue. After a failure the caller
                # would only send the request again.
                route = await self._route(request, request_call)
                answers = await answers_of(request, route, request_call, windows, is_bulk=True)
                response = route.with_detected_language(
                    await answers.to(answers.sources[0]).whole()
                )
            except BaseException:
                request_call.free_memory()
                raise
            finally:
                request_call.release_models()
                call.take_model_of(request_call)
            return Answered(response, request_call.free_memory)

        bulk = Bulk(call, answer, slots, self._draining)
        async with aclosing(bulk.responses(requests)) as responses:
            async for response in responses:
                call.count_answer(response.outcome.response)
                yield response

    async def Score(
        self, request: generation_pb2.ScoreRequest, call: ServerCall
    ) -> generation_pb2.ScoreResponse:
        """Scores a given target."""
        return await score(await self._model(request, call), request, call)

    async def Attention(
        self, request: generation_pb2.AttentionRequest, call: ServerCall
    ) -> generation_pb2.AttentionResponse:
        """Returns the attention of a target, which is generated if the request has none."""
        return await attention(await self._model(request, call), request, call)

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, call: ServerCall
    ) -> generation_pb2.TokenizeResponse:
        """Divides a text into tokens."""
        return await tokenize(await self._model(request, call), request, call)

    async def Detokenize(
        self, request: generation_pb2.DetokenizeRequest, call: ServerCall
    ) -> generation_pb2.DetokenizeResponse:
        """Joins tokens to a text."""
        return await detokenize(await self._model(request, call), request, call)

    async def DetectLanguage(
        self, request: generation_pb2.DetectLanguageRequest, call: ServerCall
    ) -> generation_pb2.DetectLanguageResponse:
        """Tells in which language a text probably is."""
        if len(request.text) > MAX_CHARACTERS:
            reason = f"has {len(request.text):,} characters; a call takes at most"
            raise InvalidRequest("text", f"{reason} {MAX_CHARACTERS:,}")
        if len(request.languages) > _MAX_LANGUAGES:
            reason = f"are {len(request.languages):,}; a call takes at most {_MAX_LANGUAGES}"
            raise InvalidRequest("languages", reason)
        codes = list(request.languages) or self._repository.pairs.sources()
        detected = await self._detector.detect(request.text, codes)
        return generation_pb2.DetectLanguageResponse(
            languages=[
                generation_pb2.DetectedLanguage(language=each.language, confidence=each.confidence)
                for each in detected
                if each.confidence >= _MIN_CONFIDENCE
            ]
        )

    async def _route(self, request: Request, call: ServerCall) -> Route:
        """Finds the model that a request names, or else those of its languages, or the default."""
        return await Route.of(request, self._repository, call, self._detector, self._glossaries)

    async def _lone_answer(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> tuple[Route, SourceAnswer | PivotAnswer]:
        """Finds the models of a call of one source, and prepares its answer."""
        route = await self._route(request, call)
        answers = await answers_of(request, route, call)
        answer = answers.to(answers.sources[0])
        call.facts["source_tokens"] = answer.source_tokens
        return route, answer

    async def _model(self, request: Request, call: ServerCall) -> ServedModel:
        """Finds the model of a call that has no use for two."""
        return (await self._route(request, call)).only()
