"""Protected texts come back as they are: placeholders, foreign words, what the caller names."""

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Finished, Hypothesis
from seqserve_server.features.alignment import Alignment
from seqserve_server.features.protected_places import restore
from seqserve_server.front.generate.records import ID_BYTES, STRING_BYTES, Asked, Feature, Part
from seqserve_server.text.foreign import foreign_words, with_names
from seqserve_server.text.protected import is_missing, protected_spans, without_tags

_MAX_CHARACTERS = 256
_CHARACTER_BYTES = 4


def protected(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it."""
    options = asked.options
    for text in options.keep:
        if not text.strip() or len(text) > _MAX_CHARACTERS:
            reason = f"have one of {len(text)} characters; each has 1 to {_MAX_CHARACTERS}"
            raise InvalidRequest("options.keep", f"{reason}, and not white space alone")
    return _Protected(asked) if options.keep or options.keep_placeholders else None


class _Protected(Feature):
    """Has what is protected come back exactly and once; see ``protected_places``."""

    field = "options.keep"
    shapes_text = True

    def __init__(self, asked: Asked) -> None:
        self._texts = tuple(asked.options.keep)
        self._has_placeholders = asked.options.keep_placeholders
        self._returns_alignment = asked.options.return_alignment
        self._tokenizer = asked.model.tokenizer
        self._can_score = asked.model.manifest.can_score
        self._alignment = Alignment(asked)

    def read(self, part: Part) -> Part:
        text, tokenizer = part.original, self._tokenizer
        foreign = foreign_words(text, tokenizer) if self._has_placeholders else []
        spans = protected_spans(text, self._texts, self._has_placeholders, foreign)
        if named := sorted({*foreign}.intersection(spans)):
            part = part._replace(text=with_names(text, named, tokenizer))
        if "</" in text and tokenizer.joins_spaces:
            part = part._replace(text=without_tags(text, part.text, spans))
        return part._replace(protected=spans) if spans else part

    def max_bytes(self, part: Part) -> int:
        # Each is in the text and by itself, with its places.
        return sum(
            2 * _CHARACTER_BYTES * (end - begin) + STRING_BYTES + 6 * ID_BYTES
            for begin, end in part.protected
        )

    def rewrites(self, part: Part) -> bool:
        return bool(part.protected)

    def needs_attention(self, part: Part, answer: Finished) -> bool:
        if not (part.protected and self._can_score):
            return False
        if any(hypothesis.attention for hypothesis in answer.hypotheses):
            return False
        # A request whose time ran out in the queue has written nothing.
        written = [each.token_ids for each in answer.hypotheses if each.token_ids]
        texts = map(self._tokenizer.decode, written)
        return any(is_missing(each, part.original, part.protected, part.text) for each in texts)

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        if not part.protected:
            return
        if not self._returns_alignment:
            self._alignment.write(part, hypothesis, message)
        restore(message, part.original, part.protected, part.text)
        if not self._returns_alignment:
            message.ClearField("alignment")
