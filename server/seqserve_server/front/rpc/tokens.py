"""Answers Tokenize and Detokenize, which show what a model reads and writes."""

from __future__ import annotations

import asyncio

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.calls.server_call import current
from seqserve_server.front.rpc.options.answer_size import AnswerSize
from seqserve_server.front.rpc.options.languages import affixes_of

MAX_CHARACTERS = MAX_TOKENS = 100_000
"""Longest text, in code points, and most tokens."""


async def tokenize(
    model: ServedModel, request: generation_pb2.TokenizeRequest
) -> generation_pb2.TokenizeResponse:
    """Divides a text into tokens."""
    text, tokenizer = request.text, model.tokenizer
    if len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; a call takes at most {MAX_CHARACTERS:,}"
        raise InvalidRequest("text", reason)
    affixes = affixes_of(
        request.source_language, request.target_language, model.manifest, tokenizer, section=""
    )
    limits = model.manifest.limits
    # In a thread, so that other calls need not wait for a long text.
    found = await asyncio.to_thread(tokenizer.pieces, text, is_target=request.is_target)
    if request.is_target:
        length, max_length = len(affixes.target) + len(found.ids), limits.max_target_length
    else:
        read = await asyncio.to_thread(tokenizer.encode, affixes.text + text)
        length, max_length = len(affixes.around(read)), limits.max_source_length
    size = AnswerSize.tokenized(len(found.ids), tokenizer.token_bytes)
    await current.get().reserve(size, request)
    current.get().facts["source_tokens"] = len(found.ids)
    return generation_pb2.TokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        tokens=tokenizer.tokens(found.ids),
        token_ids=found.ids,
        begins=[begin for begin, _ in found.offsets],
        ends=[end for _, end in found.offsets],
        length=length,
        max_length=max_length,
    )


async def detokenize(
    model: ServedModel, request: generation_pb2.DetokenizeRequest
) -> generation_pb2.DetokenizeResponse:
    """Joins tokens to a text."""
    ids = list(request.token_ids)
    if len(ids) > MAX_TOKENS:
        raise InvalidRequest("token_ids", f"are {len(ids):,}; a call takes at most {MAX_TOKENS:,}")
    size = model.manifest.architecture.vocabulary_size
    for index, id_ in enumerate(ids):
        if id_ >= size:
            reason = f"is {id_}; {model.manifest.label} has the ids 0 to {size - 1}"
            raise InvalidRequest(f"token_ids[{index}]", reason)
    await current.get().reserve(
        AnswerSize.tokenized(len(ids), model.tokenizer.token_bytes), request
    )
    return generation_pb2.DetokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        text=await asyncio.to_thread(model.tokenizer.decode, ids),
    )
