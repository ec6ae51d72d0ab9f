"""Implements ``seqserve.v1.GenerationService``: the begin of the way, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.contract.errors import InvalidRequest, ServiceError
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.generate.answer import answer, counted_stream
from seqserve_server.front.generate.bulk import Bulk, Requests
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
_RESPONSE = generation_pb2.Outcome.RESPONSE_FIELD_NUMBER
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
        response = call.record_single(await answer(job, job.sources[0]))
        call.count_use(len(request.source), _tokens_of(response))
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
        # The longest first: at the end they would run with few beside them.
        order = sorted(range(len(outcomes)), key=lambda place: -_tokens(job.sources[place]))
        in_order = Window(route.window).in_order(
            [job.sources[place] for place in order], partial(answer, job)
        )
        async with aclosing(in_order):
            for place in order:
                each = await anext(in_order)
                try:
                    response = each.result()
                    call.count_use(len(request.sources[place]), _tokens_of(response))
                    # Not copied into an outcome first.
                    data = encoded_list(_RESPONSE, [response.SerializeToString()])
                except ServiceError as error:
                    # No response, and so no tokens.
                    response = generation_pb2.GenerateResponse()
                    data = generation_pb2.Outcome(failure=call.failed(error)).SerializeToString()
                call.record_one_of_many(response)
                outcomes[place] = data
        return encoded_list(_OUTCOMES, outcomes)

    async def GenerateBulk(
        self, requests: Requests, call: ServerCall
    ) -> AsyncGenerator[generation_pb2.GenerateBulkResponse, None]:
        """Answers each source as soon as it is done; reads on only while few are in flight."""
        models = self._directory.repository.models()
        size = window_of(max((model.engine.capacity.slots for model in models), default=1))
        window = Window(size)

        async def respond(
            request: generation_pb2.GenerateRequest, request_call: ServerCall
        ) -> generation_pb2.GenerateResponse:
            # A refused request keeps its place among the few, so the caller is not read from:
            # back-pressure is the right effect of a full queue. After a failure the caller would
            # only send the request again.
            if error := call.quota_error():
                raise error
            route = await resolve(request, self._directory, request_call, is_bulk=True)
            job = await read(request, route, request_call, window)
            response = await answer(job, job.sources[0])
            call.count_use(len(request.source), _tokens_of(response))
            return response

        bulk = Bulk(call, respond, size, self._draining)
        async with aclosing(bulk.responses(requests)) as responses:
            async for response in responses:
                call.record_one_of_many(response.outcome.response)
                yield response

    Score, Attention = _of_one_model(score), _of_one_model(attention)
    Tokenize, Detokenize = _of_one_model(tokenize), _of_one_model(detokenize)

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
        codes = list(request.languages) or self._directory.repository.pairs.sources()
        detected = await self._directory.detect(request.text, codes, call.client_id)
        return generation_pb2.DetectLanguageResponse(
            languages=[each for each in detected if each.confidence >= _MIN_CONFIDENCE]
        )


def _tokens(source: Source | ServiceError) -> int:
    return source.num_tokens if isinstance(source, Source) else 0


def _tokens_of(response: generation_pb2.GenerateResponse) -> int:
    return response.source_tokens + response.generated_tokens


def encoded_list(field: int, items: Sequence[bytes]) -> bytes:
    """Encodes a message whose only field is a list of messages that are encoded already."""
    tag = _varint(field << 3 | 2)
    pieces: list[bytes | bytearray] = []
    for item in items:
        pieces += (tag, _varint(len(item)), item)
    return b"".join(pieces)


def _varint(number: int) -> bytearray:
    written = bytearray()
    while number > 127:
        written.append(number & 127 | 128)
        number >>= 7
    written.append(number)
    return written
