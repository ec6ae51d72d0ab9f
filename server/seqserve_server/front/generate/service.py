"""Implements ``seqserve.v1.GenerationService``: the begin of the way, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

from seqserve.language_codes import AUTO
from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.wire import encoded_list
from seqserve_server.front.generate.answer import answer, counted_stream
from seqserve_server.front.generate.bulk import RESPONSE, Bulk, Messages
from seqserve_server.front.generate.job import Window
from seqserve_server.front.generate.records import Source, window_of
from seqserve_server.front.generate.route import Directory, resolve, single_model
from seqserve_server.front.generate.scoring import (
    MAX_CHARACTERS,
    attention,
    detokenize,
    score,
    tokenize,
)
from seqserve_server.front.generate.source import read

_MIN_CONFIDENCE = 0.001
_MAX_LANGUAGES = 512
_OUTCOMES = generation_pb2.GenerateBatchResponse.OUTCOMES_FIELD_NUMBER


def _of_one_model(answer_by: Callable[..., Awaitable[Any]]) -> Any:
    async def method(self: GenerationServicer, request: Any, call: ServerCall) -> Any:
        model = await single_model(request, self._directory, call)
        answered = await answer_by(model, request, call)
        source = getattr(request, "source", "") or getattr(request, "text", "")
        call.count_use(len(source), int(call.facts.get("source_tokens", 0)))
        return answered

    return method


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out."""

    def __init__(self, directory: Directory, draining: asyncio.Event) -> None:
        self._directory, self._draining = directory, draining

    async def Generate(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> generation_pb2.GenerateResponse:
        """Answers when every hypothesis is finished."""
        route = await resolve(request, self._directory, call)
        job = await read(request, route, call)
        response = call.record_single(await answer(job, job.only_source))
        call.used(len(request.source), response)
        return response

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        route = await resolve(request, self._directory, call)
        job = await read(request, route, call)
        async with aclosing(counted_stream(job)) as pieces:
            async for each in pieces:
                if isinstance(each, generation_pb2.Piece):
                    yield generation_pb2.GenerateStreamResponse(piece=each)
                else:
                    yield generation_pb2.GenerateStreamResponse(result=call.record_single(each))

    async def GenerateBatch(
        self, request: generation_pb2.GenerateBatchRequest, call: ServerCall
    ) -> bytes:
        """Answers when every source has its outcome; until then each one is kept encoded."""
        route = await resolve(request, self._directory, call)
        job = await read(request, route, call)
        outcomes = [b""] * len(job.sources)
        # The longest first: at the end they would run in a small batch.
        order = sorted(range(len(outcomes)), key=lambda place: -_tokens(job.sources[place]))
        in_order = Window(route.window).in_order(
            [job.sources[place] for place in order], partial(answer, job)
        )
        async with aclosing(in_order):
            for place in order:
                each = await anext(in_order)
                try:
                    response = each.result()
                    call.used(len(request.sources[place]), response)
                    data = encoded_list(RESPONSE, [response.SerializeToString()])
                except ServiceError as error:
                    # No response, and so no tokens.
                    response = generation_pb2.GenerateResponse()
                    data = generation_pb2.Outcome(failure=call.failed(error)).SerializeToString()
                call.record_one_of_many(response)
                outcomes[place] = data
        return encoded_list(_OUTCOMES, outcomes)

    async def GenerateBulk(
        self, messages: Messages, call: ServerCall
    ) -> AsyncGenerator[bytes, None]:
        """Answers each source as soon as it is done; reads on only while few are in flight."""
        models = self._directory.repository.models()
        size = window_of(max((model.engine.capacity.slots for model in models), default=1))
        window = Window(size)

        async def read_sources(
            request: generation_pb2.GenerateRequest | generation_pb2.GenerateBatchRequest,
            request_call: ServerCall,
        ) -> list[Callable[[], Awaitable[generation_pb2.GenerateResponse]]]:
            # A refused request keeps its place among the few, so the caller is not read from:
            # back-pressure is the right effect of a full queue. After a failure the caller would
            # only send the request again.
            is_batch = isinstance(request, generation_pb2.GenerateBatchRequest)
            if is_batch and request.options.source_language == AUTO:
                return []
            route = await resolve(request, self._directory, request_call, is_bulk=True)
            if is_batch and not all(hop.options.is_repeatable for hop in route.hops):
                # Each draws a seed of its own.
                return []
            job = await read(request, route, request_call, window)
            return [partial(answer, job, source) for source in job.sources]

        bulk = Bulk(call, read_sources, size, self._draining)
        async with aclosing(bulk.responses(messages)) as responses:
            async for response in responses:
                yield response

    Score, Attention = _of_one_model(score), _of_one_model(attention)
    Tokenize, Detokenize = _of_one_model(tokenize), _of_one_model(detokenize)

    async def DetectLanguage(
        self, request: generation_pb2.DetectLanguageRequest, call: ServerCall
    ) -> generation_pb2.DetectLanguageResponse:
        """Returns the probable languages of a text."""
        if len(request.text) > MAX_CHARACTERS:
            reason = f"has {len(request.text):,} characters; a call takes at most"
            raise InvalidRequest("text", f"{reason} {MAX_CHARACTERS:,}")
        if len(request.languages) > _MAX_LANGUAGES:
            reason = f"are {len(request.languages):,}; a call takes at most {_MAX_LANGUAGES}"
            raise InvalidRequest("languages", reason)
        codes = list(request.languages) or self._directory.repository.pairs.sources()
        detected = await self._directory.detect(request.text, codes, call.client_id)
        return generation_pb2.DetectLanguageResponse(
            languages=[each for each in detected if each.confidence >= _MIN_CONFIDENCE]
        )


def _tokens(source: Source | ServiceError) -> int:
    return source.num_tokens if isinstance(source, Source) else 0
