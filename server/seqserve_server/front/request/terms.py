"""Terms: translations of words or phrases that a source contains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, missing_terms
from seqserve_server.contract.tokenizer import Tokenizer

Term = generation_pb2.Term
TokenIds = tuple[int, ...]

_MAX_CHARACTERS = 256


def target_ids(terms: Sequence[Term], tokenizer: Tokenizer) -> tuple[TokenIds, ...]:
    """Tokenizes the target of each term; checks the texts, and that no source comes twice."""
    sources = set()
    for term in terms:
        _check_text("source", term.source)
        _check_text("target", term.target)
        if term.source in sources:
            raise _wrong(f"have the source {term.source!r:.80} twice; a source has one target")
        sources.add(term.source)
    return tuple(_ids(term.target, tokenizer) for term in terms)


def check_terms(
    terms: Sequence[Term],
    targets: Sequence[TokenIds],
    suppressed: set[int],
    ends: set[int],
    vocabulary: set[int],
) -> None:
    """Checks that a hypothesis can contain each target; an empty vocabulary allows every token."""
    for term, target in zip(terms, targets, strict=True):
        start = f"have the target {term.target!r:.80}, which has a token that"
        if not suppressed.isdisjoint(target):
            raise _wrong(f"{start} is suppressed")
        if not ends.isdisjoint(target):
            raise _wrong(f"{start} ends a hypothesis")
        if vocabulary and not vocabulary.issuperset(target):
            raise _wrong(f"{start} is not in vocabulary_allow")


def for_source(
    options: DecodingOptions, terms: Sequence[Term], *spellings: str
) -> tuple[DecodingOptions, Sequence[Term]]:
    """Keeps the terms that a source text contains, in the options and as they were sent.

    Args:
        options: What all sources share.
        terms: The terms as they were sent.
        spellings: The source, and the same as the model reads it, without soft hyphens.

    Raises:
        InvalidRequest: Their targets do not fit the maximum length.
    """
    if not terms:
        return options, ()
    pairs = zip(terms, options.terms, strict=True)
    kept = [pair for pair in pairs if any(pair[0].source in text for text in spellings)]
    targets = tuple(target for _, target in kept)
    prefix, limit = options.prefix, options.max_decoding_length
    needed = len(prefix) + sum(len(targets[index]) for index in missing_terms(targets, prefix))
    if needed > limit:
        raise _wrong(
            f"of the source do not fit: their targets and the prefix have {needed} tokens, and"
            f" max_decoding_length is {limit}"
        )
    return replace(options, terms=targets), [term for term, _ in kept]


def _check_text(which: str, text: str) -> None:
    if not text.strip():
        raise _wrong(f"have one whose {which} is empty")
    if len(text) > _MAX_CHARACTERS:
        reason = f"has {len(text)} characters; at most {_MAX_CHARACTERS} are allowed"
        raise _wrong(f"have one whose {which} {reason}")


def _ids(target: str, tokenizer: Tokenizer) -> TokenIds:
    token_ids = tuple(tokenizer.encode_target(target)[:-1])
    if not token_ids:
        raise _wrong(f"have the target {target!r:.80}, no character of which the model writes")
    return token_ids


def _wrong(reason: str) -> InvalidRequest:
    return InvalidRequest("options.terms", reason)
