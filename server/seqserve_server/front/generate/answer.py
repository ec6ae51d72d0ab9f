"""Answers a source: runs its parts on the engine, as many at once as a window lets in."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeAlias, TypeVar

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.contract.events import Finished
from seqserve_server.front.generate.engine_call import CachedCall, EngineCall, Result, answer_of
from seqserve_server.front.generate.job import Job
from seqserve_server.front.generate.joined import Joined, compose_hops, join_legs
from seqserve_server.front.generate.records import Check, Hop, Part, Source
from seqserve_server.front.generate.response import response_of
from seqserve_server.front.generate.source import read_onward
from seqserve_server.front.overload.turns import run_now, run_slowly
from seqserve_server.text.tokenizer import Tokenizer

Response = generation_pb2.GenerateResponse
Piece = generation_pb2.Piece
Streamed: TypeAlias = AsyncGenerator[Piece | Response, None]
Finish = TypeVar("Finish")


def answer(job: Job, source: Source | ServiceError) -> Awaitable[Response]:
    """Begins to answer a source of a job; the response comes once all its parts are finished.

    Where that takes no more than a request to the engine, it takes no task either.
    """
    if isinstance(source, ServiceError):
        raise source
    if len(source.parts) == 1:
        return _answer_part(job, partial(_of_lone, job, source), source.parts[0])
    return _answer_parts(job, source)


async def _answer_parts(job: Job, source: Source) -> Response:
    joined = Joined(source)
    answer_part = partial(_answer_part, job, _unchanged)
    async with aclosing(job.window.in_order(source.parts, answer_part)) as responses:
        async for each in responses:
            joined.add(each.result())
    return _joined(job, joined)


def _of_lone(job: Job, source: Source, response: Response | None) -> Response:
    if source.is_divided:
        joined = Joined(source)
        joined.add(response)
        return _joined(job, joined)
    assert response is not None
    return _annotated(job, response)


async def streamed(job: Job) -> Streamed:
    """Yields the text of the only source of a job as soon as it is final, part by part or as a lone
    part is decoded; then the whole answer."""
    source = job.only_source
    parts, joined = source.parts, Joined(source)
    if len(parts) == 1 and parts[0].tokens:
        if begin := parts[0].span.begin:
            yield Piece(text=source.text[:begin])
        stream = _stream_onward if job.route.is_pivot else _stream_tokens
        async with aclosing(stream(job, parts[0])) as pieces:
            async for each in pieces:
                if isinstance(each, Piece):
                    yield each
                elif source.is_divided:
                    joined.add(each)
                else:
                    yield _annotated(job, each)
                    return
    else:
        answer_part = partial(_answer_part, job, _unchanged)
        async with aclosing(job.window.in_order(parts, answer_part)) as responses:
            async for response in responses:
                yield Piece(text=joined.add(response.result()))
    if rest := joined.rest():
        yield Piece(text=rest)
    yield _joined(job, joined)


async def counted_stream(job: Job) -> Streamed:
    """Streams the answer to the only source of a job, and counts what its caller uses.

    A caller that leaves keeps what it was sent, so that counts too.
    """
    source, used = job.only_source, -1
    try:
        async with aclosing(streamed(job)) as pieces:
            async for each in pieces:
                if isinstance(each, Piece):
                    used = (source.num_tokens if used < 0 else used) + len(each.token_ids)
                else:
                    used = each.source_tokens + each.generated_tokens
                yield each
    finally:
        if used >= 0:
            job.call.count_use(len(source.text), used)


def _unchanged(response: Response | None) -> Response | None:
    return response


def _answer_part(
    job: Job, finish: Callable[[Response | None], Finish], part: Part
) -> Awaitable[Finish]:
    """Begins to answer a part; ``finish`` gets the response to it, or None if it stays."""
    if not part.tokens:
        stays: asyncio.Future[Finish] = asyncio.Future()
        stays.set_result(finish(None))
        return stays
    if job.route.is_pivot:
        return _answer_onward(job, finish, part)
    hop = job.hop
    if _is_large(hop, part) or (part.check and part.check.repairs):
        return _answer_slowly(job, finish, part)

    def make(call: EngineCall[Finish]) -> Finish:
        return finish(run_now(response_of(hop, part, call.answer, call.timeline)))

    return _call(job, part, make).begin()


def _call(
    job: Job, part: Part, make: Callable[[EngineCall[Any]], Result], *, streamed: bool = False
) -> EngineCall[Result]:
    """Prepares the request of a part; its answer may be kept."""
    model, options, _ = job.hop

    def wants_attention(answer: Finished) -> bool:
        return any(feature.needs_attention(part, answer) for feature in options.features)

    others = job.spec(part, streamed=streamed), job.call, make
    wants = wants_attention if options.features else None
    if model.answers is not None and options.is_repeatable:
        return CachedCall(model.answers, model.engine, *others, wants)
    return EngineCall(model.engine, *others, wants)


def _is_large(hop: Hop, part: Part) -> bool:
    return part.decoding.return_attention or bool(hop.options.decoding.return_top_tokens)


async def _answer_slowly(
    job: Job, finish: Callable[[Response | None], Finish], part: Part
) -> Finish:
    call = _call(job, part, answer_of)
    await call.begin()
    if part.check is not None:
        call = await _checked(job, part, call, part.check)
    return finish(await _written(job, part, call))


async def _checked(job: Job, part: Part, call: EngineCall[Any], check: Check) -> EngineCall[Any]:
    """Decodes a part again if its answer is wrong; returns the better call."""
    again = check.second_try(part, call.answer)
    if again is None:
        return call
    other = _call(job, again, answer_of)
    # The first answer is complete without.
    with suppress(ServiceError):
        if check.is_better(part, call.answer, await other.begin()):
            return other
    return call


async def _written(job: Job, part: Part, call: EngineCall[Any]) -> Response:
    """Writes an answer; if it is large, other calls get their turn while it is written."""
    steps = response_of(job.hop, part, call.answer, call.timeline)
    if not _is_large(job.hop, part):
        return run_now(steps)
    async with job.call.resources.writing:
        return await run_slowly(steps)


async def _answer_onward(
    job: Job, finish: Callable[[Response | None], Finish], part: Part
) -> Finish:
    first, onward = await _read_onward(job, part)
    second = await answer(onward, onward.only_source) if onward else None
    return finish(compose_hops(first, second, job.route.hops))


async def _stream_onward(job: Job, part: Part) -> Streamed:
    first, onward = await _read_onward(job, part)
    if onward is None:
        yield compose_hops(first, None, job.route.hops)
        return
    async with aclosing(streamed(onward)) as pieces:
        async for each in pieces:
            yield each if isinstance(each, Piece) else compose_hops(first, each, job.route.hops)


async def _read_onward(job: Job, part: Part) -> tuple[Response, Job | None]:
    """Returns the answer of the first model, and the job of the second; None if it stays so."""
    first = await _answer_slowly(job, _unchanged, part)
    assert first is not None
    text = first.hypotheses[0].text
    # A text without a word stays as it is.
    onward = await read_onward(job, text) if text.strip() else None
    return first, onward


async def _stream_tokens(job: Job, part: Part) -> Streamed:
    # Text that may still change is not streamed.
    waits = any(feature.rewrites(part) for feature in job.hop.options.features)
    call = _call(job, part, answer_of, streamed=not waits)
    tokenizer, stops = job.hop.model.tokenizer, part.decoding.stops
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
                yield Piece(text=piece, token_ids=generated[sent_tokens:end])
                sent_tokens = end
    response = await _written(job, part, call)
    best = response.hypotheses[0]
    if rest := text.flush(best.text):
        yield Piece(text=rest, token_ids=best.token_ids[sent_tokens:])
    yield response


def _covering(tokenizer: Tokenizer, tokens: list[int], text: str, min_count: int) -> int:
    """Counts the leading tokens whose text begins with ``text``; ``min_count`` or more."""
    for count in range(min_count, len(tokens)):
        if tokenizer.decode(tokens[:count]).startswith(text):
            return count
    return len(tokens)


def _joined(job: Job, joined: Joined) -> Response:
    hops = job.route.hops
    response = joined.response(hops[-1].model.manifest)
    if job.route.is_pivot:
        join_legs(hops, joined, response)
    return _annotated(job, response)


def _annotated(job: Job, response: Response) -> Response:
    if job.route.detected:
        response.detected_language.CopyFrom(job.route.detected)
    return response
