"""Answers Tokenize and Detokenize, which need no engine."""

from __future__ import annotations

import asyncio

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.call.answer_size import AnswerSize
from seqserve_server.front.call.server_call import ServerCall
from seqserve_server.front.call.text_turns import Steps
from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.request.languages import Affixes, affixes_of
from seqserve_server.text.tokenizer import Tokenizer
from seqserve_server.text.vocabulary import Pieces

MAX_CHARACTERS = MAX_TOKENS = 100_000
"""Longest text, in code points, and most tokens."""
MAX_TOKENS_PER_CHARACTER = 4
"""As many as the bytes of a character; a text whose normal form has more is refused."""


async def tokenize(
    model: ServedModel, request: generation_pb2.TokenizeRequest, call: ServerCall
) -> generation_pb2.TokenizeResponse:
    """Divides a text into tokens."""
    text, tokenizer = request.text, model.tokenizer
    if len(text) > MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; a call takes at most {MAX_CHARACTERS:,}"
        raise InvalidRequest("text", reason)
    languages = request.source_language, request.target_language
    affixes = affixes_of(*languages, model.manifest, tokenizer, section="")
    max_tokens = MAX_TOKENS_PER_CHARACTER * len(text)
    await call.reserve(AnswerSize.tokenized(max_tokens, tokenizer.token_bytes), request)
    steps = _tokenized(tokenizer, text, affixes, is_target=request.is_target)
    pieces, length = await call.read(steps, request, len(text))
    if len(pieces.ids) > max_tokens:
        reason = f"has {len(pieces.ids):,} tokens, more than {MAX_TOKENS_PER_CHARACTER} a character"
        raise InvalidRequest("text", reason)
    limits = model.manifest.limits
    call.facts["source_tokens"] = len(pieces.ids)
    return generation_pb2.TokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        tokens=(tokenizer.tokens if request.is_target else tokenizer.source_tokens)(pieces.ids),
        token_ids=pieces.ids,
        begins=[begin for begin, _ in pieces.offsets],
        ends=[end for _, end in pieces.offsets],
        length=length,
        max_length=limits.max_target_length if request.is_target else limits.max_source_length,
    )


def _tokenized(
    tokenizer: Tokenizer, text: str, affixes: Affixes, *, is_target: bool
) -> Steps[tuple[Pieces, int]]:
    """Divides a text into tokens, and counts all that a model reads or writes for it."""
    pieces = tokenizer.pieces(text, is_target=is_target)
    if is_target:
        return pieces, len(affixes.target) + len(pieces.ids)
    yield
    return pieces, len(affixes.around(tokenizer.encode(affixes.text + text)))


async def detokenize(
    model: ServedModel, request: generation_pb2.DetokenizeRequest, call: ServerCall
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
    await call.reserve(AnswerSize.tokenized(len(ids), model.tokenizer.token_bytes), request)
    return generation_pb2.DetokenizeResponse(
        model=model.manifest.name,
        version=model.manifest.version,
        text=await asyncio.to_thread(model.tokenizer.decode, ids),
    )
