"""Terms: how words of a source are to be translated, where they are in it."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import MAX_TERMS
from seqserve_server.contract.options import DecodingOptions
from seqserve_server.contract.terms import unmet
from seqserve_server.contract.tokenizer import Tokenizer

Term = generation_pb2.Term
Words = tuple[int, ...]

_MOST_CHARACTERS = 256


def words_of(terms: Sequence[Term], tokenizer: Tokenizer) -> tuple[Words, ...]:
    """Gives the tokens of each target, which is a text of its own.

    Raises:
        InvalidRequest: They are too many; or one is empty, too long, or has the source of another.
    """
    if len(terms) > MAX_TERMS:
        raise _wrong(f"are {len(terms)}; at most {MAX_TERMS} are taken")
    sources = set()
    for term in terms:
        _check_text("source", term.source)
        _check_text("target", term.target)
        if term.source in sources:
            raise _wrong(f"hold {term.source!r:.80} twice; a source has one target")
        sources.add(term.source)
    return tuple(_words(term.target, tokenizer) for term in terms)


def check_terms(
    terms: Sequence[Term],
    words: Sequence[Words],
    never: Set[int],
    ends: Sequence[int],
    vocabulary: Sequence[int],
) -> None:
    """Refuses a target that no hypothesis could contain.

    Args:
        terms: As they were sent.
        words: The tokens of their targets.
        never: Tokens that are suppressed.
        ends: Tokens that end a hypothesis.
        vocabulary: The only tokens that are generated; all where empty.

    Raises:
        InvalidRequest: There is one.
    """
    allowed = set(vocabulary)
    for term, said in zip(terms, words, strict=True):
        target = f"have the target {term.target!r:.80}, which holds"
        if not never.isdisjoint(said):
            raise _wrong(f"{target} a token that is suppressed")
        if not set(ends).isdisjoint(said):
            raise _wrong(f"{target} a token that ends a hypothesis")
        if allowed and not allowed.issuperset(said):
            raise _wrong(f"{target} a token that is not in vocabulary_allow")


def applying(terms: Sequence[Term], source: str) -> list[Term]:
    """Lists the terms that are in a source text."""
    return [term for term in terms if term.source in source]


def for_source(options: DecodingOptions, terms: Sequence[Term], source: str) -> DecodingOptions:
    """Leaves of the terms those that are in a source text.

    Args:
        options: How to decode, with all terms.
        terms: The same terms as they were sent.
        source: The text.

    Raises:
        InvalidRequest: Their targets, and the prefix, are longer than a hypothesis may be.
    """
    if not terms:
        return options
    both = zip(terms, options.terms, strict=True)
    words = tuple(said for term, said in both if term.source in source)
    _check_room(words, options)
    return replace(options, terms=words)


def _check_room(words: Sequence[Words], options: DecodingOptions) -> None:
    prefix, longest = options.prefix, options.max_decoding_length
    needed = len(prefix) + sum(len(words[number]) for number in unmet(words, prefix))
    if needed > longest:
        raise _wrong(
            f"that are in the source have targets that do not fit: they and the prefix have"
            f" {needed} tokens, and max_decoding_length is {longest}"
        )


def _check_text(which: str, text: str) -> None:
    if not text.strip():
        raise _wrong(f"have one whose {which} is empty")
    if len(text) > _MOST_CHARACTERS:
        raise _wrong(
            f"have one whose {which} has {len(text)} characters; it may have {_MOST_CHARACTERS}"
        )


def _words(target: str, tokenizer: Tokenizer) -> Words:
    words = tuple(tokenizer.encode(target)[:-1])
    if not words:
        raise _wrong(f"have the target {target!r:.80}, no character of which the model writes")
    return words


def _wrong(reason: str) -> InvalidRequest:
    return InvalidRequest("options.terms", reason)
