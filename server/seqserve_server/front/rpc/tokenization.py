"""Turns the texts of a request into token ids, and checks them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from seqserve_server.front.models.repository import ServedModel
from seqserve_server.front.rpc.calls.server_call import current
from seqserve_server.front.rpc.options.languages import Affixes
from seqserve_server.front.rpc.options.validation import (
    check_source,
    check_source_tokens,
    check_target,
    check_target_tokens,
)

# A longer text is tokenized in a thread, so that other calls need not wait for it.
_INLINE_CHARACTERS = 1024


async def source_tokens(model: ServedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a source and adds what the model reads beside it.

    Raises:
        InvalidRequest: It is empty or too long.
    """
    check_source(text, model.manifest)
    own = await _tokens(model.tokenizer.encode, affixes.text + text)
    tokens = affixes.around(own)
    check_source_tokens(own, len(tokens) - len(own), model.manifest)
    current.get().facts["source_tokens"] = len(tokens)
    return tokens


async def target_tokens(model: ServedModel, text: str, affixes: Affixes) -> list[int]:
    """Tokenizes a target, the end token last, and adds what the model wants first.

    Raises:
        InvalidRequest: It is too long.
    """
    check_target(text, model.manifest)
    tokens = [*affixes.target, *await _tokens(model.tokenizer.encode_target, text)]
    check_target_tokens(tokens, model.manifest)
    return tokens


async def _tokens(encode: Callable[[str], list[int]], text: str) -> list[int]:
    if len(text) <= _INLINE_CHARACTERS:
        return encode(text)
    return await asyncio.to_thread(encode, text)
