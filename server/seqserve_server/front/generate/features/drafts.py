"""Drafts: what a target may be, so that the engine need not write it token by token."""

from typing import TypeAlias

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.front.generate.records import Asked, Feature, Part
from seqserve_server.text.tokenizer import Tokenizer

TokenIds: TypeAlias = tuple[int, ...]

_MAX_CHARACTERS = 16_384


def drafts(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it and its search can follow a draft."""
    options, decoding, tokenizer = asked.options, asked.decoding, asked.model.tokenizer
    text = options.target_draft
    if len(text) > _MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are read"
        raise InvalidRequest("options.target_draft", reason)
    if not decoding.follows_drafts:
        return None
    if options.draft_source:
        return _SourceDrafts(decoding.prefix, tokenizer)
    if not text:
        return None
    draft = _after(decoding.prefix, tokenizer.encode_target(text))
    return _TargetDraft(draft[: decoding.max_decoding_length + 1])


class _TargetDraft(Feature):
    def __init__(self, draft: TokenIds) -> None:
        self._draft = draft

    def read(self, part: Part) -> Part:
        # With terms the search of a part follows none.
        return part._replace(draft=self._draft) if part.decoding.follows_drafts else part

    def read_divided(self, parts: list[Part]) -> list[Part]:
        # A draft is for the whole text, not for its parts.
        return [part._replace(draft=()) for part in parts]


class _SourceDrafts(Feature):
    def __init__(self, prefix: TokenIds, tokenizer: Tokenizer) -> None:
        self._prefix, self._tokenizer = prefix, tokenizer

    def read(self, part: Part) -> Part:
        if not (part.tokens and part.decoding.follows_drafts):
            return part
        draft = _after(self._prefix, self._tokenizer.encode_target(part.text))
        return part._replace(draft=draft)


def _after(prefix: TokenIds, token_ids: list[int]) -> TokenIds:
    draft = tuple(token_ids)
    return draft if draft[: len(prefix)] == prefix else prefix + draft
