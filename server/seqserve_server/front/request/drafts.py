"""Drafts: what a target may be, so that the engine need not write it token by token."""

from __future__ import annotations

from typing import NamedTuple

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.text.tokenizer import Tokenizer

_MAX_CHARACTERS = 16_384


class TargetDrafts(NamedTuple):
    """The drafts of a request."""

    token_ids: tuple[int, ...] = ()
    """The draft of each source that is one text, no longer than a target; empty for none."""
    prefix: tuple[int, ...] = ()
    """Token ids with which a target begins whose draft is its source."""
    tokenizer: Tokenizer | None = None
    """What makes a draft of each source or segment; None if sources are no drafts."""

    @classmethod
    def of(
        cls,
        options: generation_pb2.GenerationOptions,
        decoding: DecodingOptions,
        tokenizer: Tokenizer,
    ) -> TargetDrafts:
        """Reads the options of a request, which has ``decoding`` options that they do not change.

        Raises:
            InvalidRequest: The draft is too long.
        """
        text = options.target_draft
        if len(text) > _MAX_CHARACTERS:
            reason = f"has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are read"
            raise InvalidRequest("options.target_draft", reason)
        if not decoding.follows_drafts:
            return cls()
        forced = decoding.prefix
        if options.draft_source:
            return cls((), forced, tokenizer)
        if not text:
            return cls()
        draft = _behind(forced, tokenizer.encode_target(text))
        return cls(draft[: decoding.max_decoding_length + 1])

    def draft_of(self, source: str) -> tuple[int, ...]:
        """Returns the draft of a source; empty for none."""
        if self.tokenizer is None:
            return self.token_ids
        return _behind(self.prefix, self.tokenizer.encode_target(source))


def _behind(prefix: tuple[int, ...], token_ids: list[int]) -> tuple[int, ...]:
    """Puts a prefix before a draft, unless the draft begins with it."""
    draft = tuple(token_ids)
    return draft if draft[: len(prefix)] == prefix else prefix + draft
