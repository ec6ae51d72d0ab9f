"""Drafts: what a target may be, so that the engine need not write it token by token."""

from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, TokenIds
from seqserve_server.front.generate.records import Asked, Feature, Part
from seqserve_server.text.tokenizer import Tokenizer

_MAX_CHARACTERS = 16_384


def drafts(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it and its search can follow a draft."""
    options, decoding, tokenizer = asked.options, asked.decoding, asked.model.tokenizer
    text = options.target_draft
    if len(text) > _MAX_CHARACTERS:
        reason = f"has {len(text):,} characters; at most {_MAX_CHARACTERS:,} are read"
        raise InvalidRequest("options.target_draft", reason)
    if not decoding.follows_drafts or not (text or options.draft_source):
        return None
    return _Drafts("" if options.draft_source else text, decoding, tokenizer)


class _Drafts(Feature):
    """Has a text as the draft of a target; without one, each part is the draft of its own."""

    def __init__(self, text: str, decoding: DecodingOptions, tokenizer: Tokenizer) -> None:
        self._prefix, self._tokenizer = decoding.prefix, tokenizer
        self._draft = self._of(text)[: decoding.max_decoding_length + 1] if text else None

    def read(self, part: Part) -> Part:
        # With terms the search of a part follows none.
        if not (part.tokens and part.decoding.follows_drafts):
            return part
        return part._replace(draft=self._draft or self._of(part.text))

    def read_divided(self, parts: list[Part]) -> list[Part]:
        # A text is for the whole target, not for its parts.
        return [part._replace(draft=()) for part in parts] if self._draft else parts

    def _of(self, text: str) -> TokenIds:
        prefix, draft = self._prefix, tuple(self._tokenizer.encode_target(text))
        return draft if draft[: len(prefix)] == prefix else prefix + draft
