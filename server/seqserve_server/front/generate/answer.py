"""Answers a source: runs its parts on the engine, as many at once as a window lets in."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, TypeVar

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import ServiceError
from seqserve_server.front.generate.engine_call import EngineCall, answer_of
from seqserve_server.front.generate.job import Job, Onward
from seqserve_server.front.generate.joined import Joined
from seqserve_server.front.generate.part_call import engine_call
from seqserve_server.front.generate.pivot import Streamed, join_legs, stream_then, then
from seqserve_server.front.generate.records import Feature, Part, Source
from seqserve_server.front.generate.response import response_of
from seqserve_server.front.overload.turns import run_now, run_slowly
from seqserve_server.text.tokenizer import Tokenizer

Response = generation_pb2.GenerateResponse
Piece = generation_pb2.Piece
Finish = TypeVar("Finish")


def answer(job: Job, source: Source | ServiceError) -> Awaitable[Response]:
    """Begins to answer a source of a job; the response comes once all its parts are finished.

    Where that takes no more than a request to the engine, it takes no task either.
    """
    if isinstance(source, ServiceError):
        raise source
    is_bulk = _is_bulk(job, source)
    if len(source.parts) == 1:
        return _answering(job, partial(_of_lone, job, source), is_bulk=is_bulk)(source.parts[0])
    return _answer_parts(job, source, is_bulk=is_bulk)


async def _answer_parts(job: Job, source: Source, *, is_bulk: bool) -> Response:
    joined = Joined(source)
    answer_part = _answering(job, _unchanged, is_bulk=is_bulk)
    async with aclosing(job.window.in_order(source.parts, answer_part)) as responses:
        async for each in responses:
            joined.add(each.result())
    return _annotated(job, _joined(job, joined))


def _of_lone(job: Job, source: Source, response: Response | None) -> Response:
    if source.is_divided:
        joined = Joined(source)
        joined.add(response)
        response = _joined(job, joined)
    assert response is not None
    return _annotated(job, response)


async def streamed(job: Job, source: Source | ServiceError) -> Streamed:
    """Yields the text as soon as it is final, then the whole answer.

    The text of a lone part comes as it is decoded, the text of many part by part.
    """
    if isinstance(source, ServiceError):
        raise source
    parts, is_bulk = source.parts, _is_bulk(job, source)
    joined = Joined(source)
    if len(parts) == 1 and parts[0].tokens:
        if begin := parts[0].span.begin:
            yield Piece(text=source.text[:begin])
        async with aclosing(_stream_part(job, parts[0], is_bulk=is_bulk)) as pieces:
            async for each in pieces:
                if isinstance(each, Piece):
                    yield each
                elif source.is_divided:
                    joined.add(each)
                else:
                    yield _annotated(job, each)
                    return
    else:
        answer_part = _answering(job, _unchanged, is_bulk=is_bulk)
        async with aclosing(job.window.in_order(parts, answer_part)) as responses:
            async for response in responses:
                yield Piece(text=joined.add(response.result()))
    if rest := joined.rest():
        yield Piece(text=rest)
    yield _annotated(job, _joined(job, joined))


async def counted_stream(job: Job) -> Streamed:
    """Streams the answer to the only source of a job, and counts what its caller uses.

    A caller that leaves keeps what it was sent, so that counts too.
    """
    source, used = job.sources[0], -1
    if isinstance(source, ServiceError):
        raise source
    try:
        async with aclosing(streamed(job, source)) as pieces:
            async for each in pieces:
                if isinstance(each, Piece):
                    used = (source.num_tokens if used < 0 else used) + len(each.token_ids)
                else:
                    used = each.source_tokens + each.generated_tokens
                yield each
    finally:
        if used >= 0:
            job.call.count_use(len(source.text), used)


def _is_bulk(job: Job, source: Source) -> bool:
    # Parts of a source count as sources of a batch: they wait when a single source is refused.
    return job.is_bulk or len(source.parts) > 1


def _unchanged(response: Response | None) -> Response | None:
    return response


def _answering(
    job: Job, finish: Callable[[Response | None], Finish], *, is_bulk: bool
) -> Callable[[Part], Awaitable[Finish]]:
    """Returns what begins to answer a part; the response to it is finished by ``finish``."""
    if job.onward is None:
        return partial(_answer_part, job, is_bulk, finish)
    first = partial(_answer_part, job, is_bulk, _unchanged)
    both = then(first, partial(_answer_onward, job.onward, is_bulk), (job.hop, job.onward.hop))

    async def finished(part: Part) -> Finish:
        return finish(await both(part))

    return finished


def _answer_part(
    job: Job, is_bulk: bool, finish: Callable[[Response | None], Finish], part: Part
) -> Awaitable[Finish]:
    if not part.tokens:
        stays: asyncio.Future[Finish] = asyncio.Future()
        stays.set_result(finish(None))
        return stays
    if _is_large(job, part) or any(check.repairs for check in part.checks):
        return _answer_slowly(job, is_bulk, finish, part)

    def make(call: EngineCall[Finish]) -> Finish:
        return finish(run_now(response_of(job.hop, part, call.answer, call.timeline)))

    return engine_call(job, part, make, is_bulk=is_bulk).begin(retries=is_bulk)


def _is_large(job: Job, part: Part) -> bool:
    return part.decoding.return_attention or bool(job.hop.options.decoding.return_top_tokens)


async def _answer_slowly(
    job: Job, is_bulk: bool, finish: Callable[[Response | None], Finish], part: Part
) -> Finish:
    call = engine_call(job, part, answer_of, is_bulk=is_bulk)
    await call.begin(retries=is_bulk)
    for check in part.checks:
        call = await _checked(job, part, call, check, is_bulk)
    return finish(await _written(job, part, call))


async def _checked(
    job: Job, part: Part, call: EngineCall[Any], check: Feature, is_bulk: bool
) -> EngineCall[Any]:
    """Decodes a part again if its answer is wrong; returns the better one of both calls."""
    again = check.second_try(part, call.answer)
    if again is None:
        return call
    other = engine_call(job, again, answer_of, is_bulk=is_bulk)
    # The first answer is complete without.
    with suppress(ServiceError):
        if check.is_better(part, call.answer, await other.begin(retries=is_bulk)):
            return other
    return call


async def _answer_onward(onward: Onward, is_bulk: bool, text: str) -> Response:
    job = await onward.read(text, is_bulk)
    return await answer(job, job.sources[0])


async def _written(job: Job, part: Part, call: EngineCall[Any]) -> Response:
    """Writes an answer; if it is large, other calls get their turn while it is written."""
    steps = response_of(job.hop, part, call.answer, call.timeline)
    if not _is_large(job, part):
        return run_now(steps)
    async with job.call.resources.writing:
        return await run_slowly(steps)


async def _stream_part(job: Job, part: Part, *, is_bulk: bool) -> Streamed:
    if job.onward is None:
        pieces = _stream_tokens(job, part, is_bulk=is_bulk)
    else:
        first = partial(_answer_part, job, is_bulk, _unchanged)
        onward = partial(_stream_onward, job.onward, is_bulk)
        pieces = stream_then(first, onward, (job.hop, job.onward.hop), part)
    async with aclosing(pieces):
        async for each in pieces:
            yield each


async def _stream_onward(onward: Onward, is_bulk: bool, text: str) -> Streamed:
    job = await onward.read(text, is_bulk)
    async with aclosing(streamed(job, job.sources[0])) as pieces:
        async for each in pieces:
            yield each


async def _stream_tokens(job: Job, part: Part, *, is_bulk: bool) -> Streamed:
    # Text that may still change is not streamed.
    waits = any(feature.rewrites(part) for feature in job.hop.options.features)
    call = engine_call(job, part, answer_of, streamed=not waits, is_bulk=is_bulk)
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
    last = job.onward.hop if job.onward else job.hop
    response = joined.response(last.model.manifest)
    if job.onward:
        join_legs((job.hop, job.onward.hop), joined, response)
    return response


def _annotated(job: Job, response: Response) -> Response:
    if job.detected:
        response.detected_language.CopyFrom(job.detected)
    return response
