"""``seqserve.v1.GenerationService``: converts and delegates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import grpc

from seqserve.v1 import generation_pb2, generation_pb2_grpc
from seqserve_server.engine.request import Finished, StopReason, Timeline
from seqserve_server.repository import Repository, ServedModel
from seqserve_server.rpc.call import EngineCall
from seqserve_server.rpc.record import current
from seqserve_server.rpc.validation import check_source, check_source_tokens, decoding_options

Context = grpc.aio.ServicerContext[Any, Any]

# A longer text is tokenised in a thread, so that other calls need not wait for it.
_INLINE_CHARACTERS = 1024

_STOP_REASONS = {
    StopReason.EOS: generation_pb2.STOP_REASON_EOS,
    StopReason.LENGTH: generation_pb2.STOP_REASON_LENGTH,
}


class GenerationServicer(generation_pb2_grpc.GenerationServiceServicer):
    """Text in, generated text out."""

    def __init__(self, repository: Repository) -> None:
        """Takes the models."""
        self._repository = repository

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        """Answers when the whole text is there."""
        model, call = await self._call(request, context, streamed=False)
        return _response(model, call, await call.finished())

    async def GenerateStream(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncGenerator[generation_pb2.GenerateStreamResponse, None]:
        """Sends text as soon as it is final, then the whole answer."""
        model, call = await self._call(request, context, streamed=True)
        text = model.tokenizer.stream()
        told: list[int] = []
        shown = 0
        async with aclosing(call.progress()) as progress:
            async for tokens in progress:
                told += tokens
                if piece := text.push(tokens):
                    yield _piece(piece, told[shown:])
                    shown = len(told)
        result = call.result()
        if rest := text.flush(result.token_ids):
            yield _piece(rest, result.token_ids[shown:])
        yield generation_pb2.GenerateStreamResponse(result=_response(model, call, result))

    async def _call(
        self, request: generation_pb2.GenerateRequest, context: Context, *, streamed: bool
    ) -> tuple[ServedModel, EngineCall]:
        record = current.get()
        model = self._repository.resolve(request.model, request.version)
        record.model = model.manifest.name
        options = decoding_options(request.options, model.manifest)
        check_source(request.source, model.manifest)
        source = await _tokens(model, request.source)
        check_source_tokens(source, model.manifest)
        record.facts["source_tokens"] = len(source)
        remaining_s = context.time_remaining()
        elapsed_s = time.monotonic() - record.began_s
        return model, EngineCall(
            model.engine,
            source,
            options,
            arrived_s=record.began_s,
            remaining_s=None if remaining_s is None else remaining_s + elapsed_s,
            streamed=streamed,
        )


async def _tokens(model: ServedModel, text: str) -> list[int]:
    if len(text) <= _INLINE_CHARACTERS:
        return model.tokenizer.encode(text)
    return await asyncio.to_thread(model.tokenizer.encode, text)


def _piece(text: str, token_ids: list[int]) -> generation_pb2.GenerateStreamResponse:
    piece = generation_pb2.Piece(text=text, token_ids=token_ids)
    return generation_pb2.GenerateStreamResponse(piece=piece)


def _response(
    model: ServedModel, call: EngineCall, result: Finished
) -> generation_pb2.GenerateResponse:
    timings = _timings(call.request.timeline)
    current.get().facts.update(
        generated_tokens=len(result.token_ids),
        queue_ms=timings.queue_ms,
        first_token_ms=timings.first_token_ms,
    )
    hypothesis = generation_pb2.Hypothesis(
        text=model.tokenizer.decode(result.token_ids),
        tokens=model.tokenizer.tokens(result.token_ids),
        token_ids=result.token_ids,
        score=result.score,
        stop_reason=_STOP_REASONS[result.stop_reason],
    )
    return generation_pb2.GenerateResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        hypotheses=[hypothesis],
        source_tokens=len(call.request.source),
        generated_tokens=len(result.token_ids),
        timings=timings,
    )


def _timings(timeline: Timeline) -> generation_pb2.Timings:
    arrived_s = timeline.arrived_s
    return generation_pb2.Timings(
        queue_ms=1e3 * (timeline.encode_began_s - arrived_s),
        encode_ms=1e3 * (timeline.encode_ended_s - timeline.encode_began_s),
        decode_ms=1e3 * (timeline.finished_s - timeline.encode_ended_s),
        first_token_ms=1e3 * (timeline.first_token_s - arrived_s),
        total_ms=1e3 * (time.monotonic() - arrived_s),
    )
