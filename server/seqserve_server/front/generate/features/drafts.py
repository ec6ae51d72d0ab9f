"""Drafts: what a target may be, so that the engine need not write it token by token."""

from __future__ import annotations

from typing import TypeAlias

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.generate.records import Feature, Part

TokenIds: TypeAlias = tuple[int, ...]

_MAX_CHARACTERS = 16_384


class Drafts(Feature):
    """Gives each part its draft."""

    def __init__(
        self, token_ids: TokenIds = (), prefix: TokenIds = (), tokenizer: Tokenizer | None = None
    ) -> None:
        """Takes the draft of a text, or the ``tokenizer`` that makes one of each part, whose target
        begins with a ``prefix``."""
        self._token_ids, self._prefix, self._tokenizer = token_ids, prefix, tokenizer

    def read(self, part: Part) -> Part:
        """Returns a part with its draft, if the engine follows one."""
        if not (part.tokens and part.decoding.follows_drafts):
            return part
        if self._tokenizer is None:
            return part._replace(draft=self._token_ids)
        return part._replace(draft=_behind(self._prefix, self._tokenizer.encode_target(part.text)))

    def read_divided(self, parts: list[Part]) -> list[Part]:
        """Returns parts without the draft that was sent, which is for the whole text."""
        return [part._replace(draft=()) for part in parts] if self._token_ids else parts


def drafts_of(
    options: generation_pb2.GenerationOptions, decoding: DecodingOptions, tokenizer: Tokenizer
) -> Drafts | None:
    """Reads the options of a request, which has ``decoding`` options that they do not change.

    Raises:
        InvalidRequest: The draft is too long.
    """
    text = options.target_draft
    if len(text) > _MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are read"
        raise InvalidRequest("options.target_draft", reason)
    if not decoding.follows_drafts:
        return None
    if options.draft_source:
        return Drafts((), decoding.prefix, tokenizer)
    if not text:
        return None
    draft = _behind(decoding.prefix, tokenizer.encode_target(text))
    return Drafts(draft[: decoding.max_decoding_length + 1])


def _behind(prefix: TokenIds, token_ids: list[int]) -> TokenIds:
    """Puts a prefix before a draft, unless the draft begins with it."""
    draft = tuple(token_ids)
    return draft if draft[: len(prefix)] == prefix else prefix + draft
