"""Terms: translations of words or phrases that a source contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.artifact.template import Template
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, missing_terms
from seqserve_server.front.glossaries.folder import Glossaries
from seqserve_server.front.glossaries.glossary import Glossary, fault_of
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.text.tokenizer import Tokenizer

Options = generation_pb2.GenerationOptions
Term = generation_pb2.Term
TokenIds = tuple[int, ...]

_MAX_TERMS = DECLARATIONS["terms"].max_items
_BEAM_SIZE = 5
"""Beams of a greedy request where a term applies: fewer put terms where they do not belong."""


def target_ids(terms: Sequence[Term], tokenizer: Tokenizer) -> tuple[TokenIds, ...]:
    """Tokenizes the target of each term; checks the texts, and that no source comes twice."""
    sources = set()
    for term in terms:
        if fault := fault_of(term):
            raise _wrong(f"have one whose {fault}")
        if term.source in sources:
            raise _wrong(f"have the source {term.source!r:.80} twice; a source has one target")
        sources.add(term.source)
    return tuple(_ids(term.target, tokenizer) for term in terms)


def check_terms(
    terms: Sequence[Term], targets: Sequence[TokenIds], options: DecodingOptions, ends: set[int]
) -> None:
    """Checks that a hypothesis, which ends with one of some tokens, can contain each target."""
    for term, target in zip(terms, targets, strict=True):
        if fault := _fault_of(target, options, ends):
            raise _wrong(f"have the target {term.target!r:.80}, which has a token that {fault}")


def glossary_of(options: Options, manifest: Manifest, glossaries: Glossaries) -> Glossary | None:
    """Finds the glossary that a request names, for its languages or those of its model.

    Raises:
        InvalidRequest: There is none for them.
    """
    if not options.glossary:
        return None
    template = manifest.template or Template()
    source, target = (
        getattr(options, f"{role}_language") or (next(iter(known)) if len(known) == 1 else "")
        for role, known in template.languages.items()
    )
    return glossaries.find(options.glossary, source, target)


class Terms:
    """The terms of a request, its own and those of its glossary."""

    def __init__(
        self,
        own: Sequence[Term],
        glossary: Glossary | None,
        options: DecodingOptions,
        model: LoadedModel,
    ) -> None:
        """Takes the terms as they were sent; ``options`` have their targets."""
        self._own, self._glossary, self._options, self._model = own, glossary, options, model

    def of(self, text: str) -> tuple[DecodingOptions, Sequence[Term]]:
        """Chooses the terms of a source: its own first, then the longest of the glossary.

        Returns:
            The options with the targets, and the terms as they were sent, in the same order. Behind
            them come terms of the glossary without a target in the options: there is no room for
            it, or the request rules it out. Without a term the options have none.

        Raises:
            InvalidRequest: The targets of the request's own terms do not fit the maximum length.
        """
        options = self._options
        if not (self._own or self._glossary):
            return options, ()
        # As the model reads it, without soft hyphens.
        spelled = self._model.tokenizer.spelled(text).text
        pairs = zip(self._own, options.terms, strict=True)
        kept = [pair for pair in pairs if pair[0].source in text or pair[0].source in spelled]
        needed = self._needed([target for _, target in kept])
        if needed > options.max_decoding_length:
            raise _wrong(
                f"of the source do not fit: their targets and the prefix have {needed} tokens, and"
                f" max_decoding_length is {options.max_decoding_length}"
            )
        left_out = self._add_glossary(kept, spelled)
        options = replace(options, terms=tuple(target for _, target in kept))
        if options.terms and options.beam_size == 1:
            max_rows = self._model.engine.capacity.max_rows
            options = replace(options, beam_size=min(_BEAM_SIZE, max_rows))
        return options, [*(term for term, _ in kept), *left_out]

    def _add_glossary(self, kept: list[tuple[Term, TokenIds]], text: str) -> list[Term]:
        """Adds the terms of the glossary, and returns those that cannot apply."""
        if self._glossary is None:
            return []
        left_out = []
        own = {term.source.casefold() for term in self._own}
        for term in self._glossary.terms_in(text):
            if term.source.casefold() in own:
                continue
            target = tuple(self._model.tokenizer.encode_target(term.target)[:-1])
            if self._may_apply(target, [each for _, each in kept]):
                kept.append((term, target))
            else:
                left_out.append(term)
        return left_out

    def _may_apply(self, target: TokenIds, others: list[TokenIds]) -> bool:
        options = self._options
        ends = set(options.end_ids or (self._model.manifest.tokens.eos,))
        return (
            len(others) < _MAX_TERMS
            and bool(target)
            and not _fault_of(target, options, ends)
            and self._needed([*others, target]) <= options.max_decoding_length
        )

    def _needed(self, targets: Sequence[TokenIds]) -> int:
        """Counts the tokens of the prefix and of the targets that it lacks."""
        prefix = self._options.prefix
        missing = missing_terms(targets, prefix)
        return len(prefix) + sum(len(targets[index]) for index in missing)


def _fault_of(target: TokenIds, options: DecodingOptions, ends: set[int]) -> str:
    """Tells why no hypothesis can contain a target; empty if one can."""
    if not options.suppressed_tokens.isdisjoint(target):
        return "is suppressed"
    if not ends.isdisjoint(target):
        return "ends a hypothesis"
    if options.vocabulary and not set(options.vocabulary).issuperset(target):
        return "is not in vocabulary_allow"
    return ""


def _ids(target: str, tokenizer: Tokenizer) -> TokenIds:
    token_ids = tuple(tokenizer.encode_target(target)[:-1])
    if not token_ids:
        raise _wrong(f"have the target {target!r:.80}, no character of which the model writes")
    return token_ids


def _wrong(reason: str) -> InvalidRequest:
    return InvalidRequest("options.terms", reason)
