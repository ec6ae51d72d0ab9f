"""Terms and drafts: what a request knows of its target, for words of the source or as a whole."""

from collections.abc import Sequence
from dataclasses import replace

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.events import Hypothesis
from seqserve_server.contract.options import DecodingOptions, TokenIds, fault_of_term, missing_terms
from seqserve_server.front.generate.records import STRING_BYTES, Asked, Feature, Part
from seqserve_server.text.glossary import TermIndex
from seqserve_server.text.tokenizer import Tokenizer

Term = generation_pb2.Term
_MAX_TERMS = DECLARATIONS["terms"].max_items
_MAX_DRAFT = 16_384
"""Characters of a draft."""
_BEAM_SIZE = 5
"""Beams of a greedy request where a term applies: fewer put terms where they do not belong."""


def terms(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has terms or a glossary; checks its own targets."""
    own = asked.options.terms
    for term, target in zip(own, asked.decoding.terms, strict=True):
        if fault := fault_of_term(target, asked.decoding, asked.ends):
            raise _wrong(f"have the target {term.target!r:.80}, which has a token that {fault}")
    return _Terms(asked) if own or asked.glossary else None


class _Terms(Feature):
    """Gives each part the terms that it contains: those of the request, then the longest of the
    glossary. After them come terms of the glossary that cannot apply, because the target has no
    room or the request excludes it."""

    field = "options.terms"

    def __init__(self, asked: Asked) -> None:
        self._own, self._glossary = list(asked.options.terms), asked.glossary
        self._index = TermIndex(self._own)
        self._decoding, self._tokenizer = asked.decoding, asked.model.tokenizer
        # Not the model, which keeps the options: it could not be freed when it is unloaded.
        self._max_rows = asked.model.engine.capacity.max_rows
        self._ends = asked.ends

    def read(self, part: Part) -> Part:
        decoding, text = self._decoding, part.rest
        # As the model reads it, without soft hyphens; mostly that is the text.
        spelled = self._tokenizer.spelled(text).text
        texts = {text, spelled} if self._own else ()
        matched = {id(term) for each in texts for term in self._index.terms_in(each)}
        pairs = zip(self._own, decoding.terms, strict=True)
        found = [pair for pair in pairs if id(pair[0]) in matched]
        needed = self._needed([target for _, target in found])
        if needed > decoding.max_decoding_length:
            raise _wrong(
                f"of the source do not fit: their targets and the prefix have {needed} tokens, and"
                f" max_decoding_length is {decoding.max_decoding_length}"
            )
        left_out = self._add_glossary(found, spelled)
        decoding = replace(decoding, terms=tuple(target for _, target in found))
        if decoding.terms and decoding.beam_size == 1:
            decoding = replace(decoding, beam_size=min(_BEAM_SIZE, self._max_rows))
        return part._replace(decoding=decoding, terms=[*(term for term, _ in found), *left_out])

    def max_bytes(self, part: Part) -> int:
        # An answer may list all of them as unmet.
        listed = (self._own, part.terms)
        return max(sum(term.ByteSize() + STRING_BYTES for term in terms) for terms in listed)

    def write(self, part: Part, hypothesis: Hypothesis, message: generation_pb2.Hypothesis) -> None:
        count = len(part.decoding.terms)
        # A second try may have more terms than a request may send.
        unmet = [index for index in hypothesis.unmet_terms if index < count]
        message.unmet_terms.extend(part.terms[index] for index in unmet)
        if left_out := part.terms[count:]:
            # Other features may have changed the text of the message.
            decoded = self._tokenizer.decode(hypothesis.token_ids)[: hypothesis.text_length]
            message.unmet_terms.extend(term for term in left_out if term.target not in decoded)

    def _add_glossary(self, found: list[tuple[Term, TokenIds]], text: str) -> list[Term]:
        if self._glossary is None:
            return []
        left_out = []
        own = {term.source.casefold() for term in self._own}
        for term in self._glossary.terms_in(text):
            if term.source.casefold() in own:
                continue
            target = tuple(self._tokenizer.encode_target(term.target)[:-1])
            if self._may_apply(target, [each for _, each in found]):
                found.append((term, target))
            else:
                left_out.append(term)
        return left_out

    def _may_apply(self, target: TokenIds, others: list[TokenIds]) -> bool:
        options = self._decoding
        return (
            len(others) < _MAX_TERMS
            and bool(target)
            and not fault_of_term(target, options, self._ends)
            and self._needed([*others, target]) <= options.max_decoding_length
        )

    def _needed(self, targets: Sequence[TokenIds]) -> int:
        """Counts the tokens of the prefix and of the targets that it lacks."""
        prefix = self._decoding.prefix
        missing = missing_terms(targets, prefix)
        return len(prefix) + sum(len(targets[index]) for index in missing)


def _wrong(reason: str) -> InvalidRequest:
    return InvalidRequest("options.terms", reason)


def drafts(asked: Asked) -> Feature | None:
    """Returns the feature, if the request has it and its search can follow a draft."""
    options, decoding, tokenizer = asked.options, asked.decoding, asked.model.tokenizer
    text = options.target_draft
    if len(text) > _MAX_DRAFT:
        reason = f"has {len(text):,} characters; at most {_MAX_DRAFT:,} are read"
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
