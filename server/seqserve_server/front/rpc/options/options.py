"""Options of a request as the caller sent them, checked, to those of the engine.

The bounds of single numbers are in :mod:`~seqserve_server.front.rpc.options.bounds`; the rules
between fields are here.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.limits import (
    MAX_ALLOWED_TOKENS,
    MAX_END_TOKENS,
    MAX_SUPPRESSED,
    MAX_TOP_K,
)
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import Priority
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.rpc.options.bounds import numbers_of
from seqserve_server.front.rpc.options.terms import check_terms, words_of

Options = generation_pb2.GenerationOptions

_MOST_STOPS = 16
_MOST_STOP_CHARACTERS = 256


_PRIORITIES: dict[int, Priority] = {
    generation_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    generation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    generation_pb2.PRIORITY_LOW: Priority.LOW,
}
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")
_NEED_A_BEAM = ("coverage_penalty", "prefix_bias_beta", "terms")
# None of these goes with any of those.
_APART = {
    "coverage_penalty": ("return_alternatives",),
    "prefix_bias_beta": ("return_alternatives", "terms", "vocabulary_allow"),
    "return_alternatives": ("terms", *_SAMPLING),
}


def default_options(manifest: Manifest) -> DecodingOptions:
    """Gives what a request without options means."""
    return DecodingOptions(max_decoding_length=manifest.limits.max_target_length)


def decoding_options(
    options: Options, manifest: Manifest, tokenizer: Tokenizer, max_rows: int
) -> DecodingOptions:
    """Checks options and fills in the model's defaults.

    The terms are all that were sent; those that a source calls for are
    :func:`~seqserve_server.front.rpc.options.terms.for_source`'s to choose.

    Args:
        options: As the caller sent them.
        manifest: Of the model.
        tokenizer: Of the model.
        max_rows: Slots that one request can have.

    Raises:
        InvalidRequest: One is unknown or out of its bounds, or they contradict each other.
    """
    if not options.ByteSize():
        return default_options(manifest)
    for message in (options, *options.suppress_sequences, *options.terms):
        _refuse_unknown(message)
    numbers = numbers_of(options)
    shortest, longest = _lengths(options, manifest)
    sampling = _sampling(options, numbers)
    _check_rows(options, numbers, sampling is not None, max_rows)
    _check_company(options, numbers)
    tokens = _Tokens(tokenizer)
    suppressed = _suppressed(options, tokens, manifest)
    ends = _ends(options, tokens)
    prefix = _prefix(options, tokens, longest)
    endings = ends or (manifest.tokens.eos,)
    _check_contradictions(options, suppressed, endings, prefix)
    if numbers["prefix_bias_beta"] and not prefix:
        raise _wrong("prefix_bias_beta", "has no prefix to prefer; set target_prefix")
    stops = _stops(options, tokenizer.decode(prefix) if prefix else "")
    vocabulary = _vocabulary(options, tokens, endings)
    _check_vocabulary(vocabulary, _never(suppressed), endings, shortest > len(prefix))
    terms = words_of(options.terms, tokenizer)
    check_terms(options.terms, terms, _never(suppressed), endings, vocabulary)
    return DecodingOptions(
        max_decoding_length=longest,
        min_decoding_length=shortest,
        beam_size=int(numbers["beam_size"]),
        patience=numbers["patience"],
        length_penalty=numbers["length_penalty"],
        coverage_penalty=numbers["coverage_penalty"],
        num_hypotheses=int(numbers["num_hypotheses"]),
        return_alternatives=options.return_alternatives,
        min_alternative_expansion_prob=numbers["min_alternative_expansion_prob"],
        sampling=sampling,
        repetition_penalty=numbers["repetition_penalty"],
        no_repeat_ngram_size=int(numbers["no_repeat_ngram_size"]),
        suppressed=suppressed,
        end_ids=ends,
        stops=stops,
        prefix=prefix,
        prefix_bias_beta=numbers["prefix_bias_beta"],
        terms=terms,
        vocabulary=vocabulary,
        return_scores=not options.HasField("return_scores") or options.return_scores,
        return_token_scores=options.return_token_scores,
        return_top_tokens=int(numbers["return_top_tokens"]),
        return_attention=options.return_attention or options.replace_unknowns,
        time_limit_s=numbers["time_limit_ms"] / 1e3,
    )


def priority_of(priority: int) -> Priority:
    """Gives who goes first; normal where it is not said.

    Raises:
        InvalidRequest: There is no such priority.
    """
    try:
        return _PRIORITIES[priority]
    except KeyError:
        reason = f"{priority} is not known to this server; it knows NORMAL and LOW"
        raise InvalidRequest("priority", reason) from None


def _wrong(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"options.{field}", reason)


def _refuse_unknown(message: Message) -> None:
    # Options change the answer, so one from a newer client must not be passed over in silence.
    unknown_fields: Any = UnknownFieldSet(message)
    for unknown in unknown_fields:
        raise InvalidRequest(
            "options", f"field {unknown.field_number} is not known to this server; upgrade it"
        )


def _lengths(options: Options, manifest: Manifest) -> tuple[int, int]:
    limit = manifest.limits.max_target_length
    longest, shortest = limit, 0
    if options.HasField("max_decoding_length"):
        longest = options.max_decoding_length
        if not 1 <= longest <= limit:
            raise _wrong(
                "max_decoding_length", f"is {longest}; {manifest.label} takes 1 to {limit}"
            )
    if options.HasField("min_decoding_length"):
        shortest = options.min_decoding_length
        if not 0 <= shortest <= longest:
            raise _wrong(
                "min_decoding_length",
                f"is {shortest}; it must be 0 to max_decoding_length, which is {longest}",
            )
    return shortest, longest


def _sampling(options: Options, numbers: dict[str, float]) -> Sampling | None:
    if not any(options.HasField(name) for name in _SAMPLING):
        return None
    return Sampling(
        temperature=numbers["temperature"],
        top_k=int(numbers["top_k"]),
        top_p=numbers["top_p"],
        min_p=numbers["min_p"],
        seed=options.seed if options.HasField("seed") else secrets.randbits(64),
    )


def _check_rows(options: Options, numbers: dict[str, float], samples: bool, max_rows: int) -> None:
    beam_size, count = numbers["beam_size"], numbers["num_hypotheses"]
    if beam_size > max_rows:
        raise _wrong("beam_size", f"is {beam_size:g}; this server keeps at most {max_rows}")
    if samples and beam_size > 1:
        given = next(name for name in _SAMPLING if options.HasField(name))
        raise _wrong("beam_size", f"is {beam_size:g} beside {given}: search or draw, not both")
    if options.return_alternatives:
        _check_alternatives(int(beam_size), int(count), max_rows)
    elif samples and count > max_rows:
        raise _wrong("num_hypotheses", f"is {count:g}; this server draws at most {max_rows}")
    elif not samples and count > beam_size:
        raise _wrong(
            "num_hypotheses",
            f"is {count:g}, more than beam_size, which is {beam_size:g}: raise that, draw"
            " samples with temperature, or set return_alternatives",
        )


def _check_alternatives(beam_size: int, count: int, max_rows: int) -> None:
    fit = min(MAX_TOP_K, max_rows // beam_size)
    if count > fit:
        raise _wrong(
            "num_hypotheses",
            f"is {count} alternatives, each a search with a beam_size of {beam_size}: at most {fit}"
            " of them fit",
        )


def _check_company(options: Options, numbers: dict[str, float]) -> None:
    """Refuses what is given beside something it does not go with, or without what it needs."""
    # Any value of a field of sampling turns sampling on; others are off where they are 0.
    asked = {
        field.name for field, value in options.ListFields() if value or field.name in _SAMPLING
    }
    for name, others in _APART.items():
        for other in others:
            if name in asked and other in asked:
                raise _wrong(name, f"is set beside {other}; choose one of them")
    for name in _NEED_A_BEAM:
        if name in asked and numbers["beam_size"] == 1:
            raise _wrong(name, "needs a beam; set beam_size above 1")
    if numbers["min_alternative_expansion_prob"] and not options.return_alternatives:
        raise _wrong("min_alternative_expansion_prob", "needs return_alternatives; set that too")


def _check_contradictions(
    options: Options,
    suppressed: tuple[tuple[int, ...], ...],
    ends: tuple[int, ...],
    prefix: tuple[int, ...],
) -> None:
    never = _never(suppressed)
    if options.end_tokens and never.intersection(ends):
        raise _wrong("suppress_tokens", "holds a token that is among end_tokens")
    if never.intersection(prefix):
        raise _wrong("suppress_tokens", "holds a token of the target prefix")
    if set(ends).intersection(prefix):
        raise _wrong(_prefix_field(options), "holds a token that ends a hypothesis")


def _check_vocabulary(
    vocabulary: tuple[int, ...], never: set[int], ends: tuple[int, ...], goes_on: bool
) -> None:
    """Refuses one of which nothing but an end can be generated.

    Args:
        vocabulary: The only tokens that are generated, ends among them; all where empty.
        never: Tokens that are suppressed.
        ends: Tokens that end a hypothesis.
        goes_on: Whether the first token must not be an end; if it may, ends can be all there is,
            such as labels of which one is chosen.
    """
    is_meant = not goes_on and set(ends).issuperset(vocabulary)
    if vocabulary and not is_meant and never.union(ends).issuperset(vocabulary):
        raise _wrong(
            "vocabulary_allow",
            "leaves nothing to generate: all its tokens are suppressed or end a hypothesis; allow"
            " some that are not",
        )


def _never(suppressed: tuple[tuple[int, ...], ...]) -> set[int]:
    return {sequence[0] for sequence in suppressed if len(sequence) == 1}


class _Tokens:
    """Finds the ids of tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def ids(self, field: str, tokens: Sequence[str]) -> list[int]:
        return [self._id(field, token) for token in tokens]

    def prefix_of(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)[:-1]

    def _id(self, field: str, token: str) -> int:
        found = self._tokenizer.id_of(token)
        if found is None:
            raise _wrong(
                field, f"{token!r:.80} is no token of the model; see the tokens of an answer"
            )
        return found


def _suppressed(
    options: Options, tokens: _Tokens, manifest: Manifest
) -> tuple[tuple[int, ...], ...]:
    found = [(token,) for token in tokens.ids("suppress_tokens", options.suppress_tokens)]
    sequences: list[tuple[int, ...]] = list(found)
    for sequence in options.suppress_sequences:
        if not sequence.tokens:
            raise _wrong("suppress_sequences", "holds an empty sequence")
        sequences.append(tuple(tokens.ids("suppress_sequences", sequence.tokens)))
    if len(sequences) > MAX_SUPPRESSED:
        field = "suppress_tokens" if len(found) > MAX_SUPPRESSED else "suppress_sequences"
        raise _wrong(field, f"are {len(sequences)} together; at most {MAX_SUPPRESSED} are taken")
    if options.disable_unk:
        sequences.append((manifest.tokens.unk,))
    return tuple(sequences)


def _ends(options: Options, tokens: _Tokens) -> tuple[int, ...]:
    if len(options.end_tokens) > MAX_END_TOKENS:
        raise _wrong(
            "end_tokens", f"are {len(options.end_tokens)}; at most {MAX_END_TOKENS} are taken"
        )
    return tuple(tokens.ids("end_tokens", options.end_tokens))


def _vocabulary(options: Options, tokens: _Tokens, ends: tuple[int, ...]) -> tuple[int, ...]:
    field = "vocabulary_allow"
    if len(options.vocabulary_allow) > MAX_ALLOWED_TOKENS:
        count = len(options.vocabulary_allow)
        raise _wrong(field, f"are {count} tokens; at most {MAX_ALLOWED_TOKENS} are taken")
    allowed = tokens.ids(field, options.vocabulary_allow)
    return tuple(sorted({*allowed, *ends})) if allowed else ()


def _stops(options: Options, prefix: str) -> tuple[str, ...]:
    stops = tuple(options.stop_sequences)
    if len(stops) > _MOST_STOPS:
        raise _wrong("stop_sequences", f"are {len(stops)}; at most {_MOST_STOPS} are taken")
    for stop in stops:
        if not 1 <= len(stop) <= _MOST_STOP_CHARACTERS:
            raise _wrong(
                "stop_sequences",
                f"one has {len(stop)} characters; each has 1 to {_MOST_STOP_CHARACTERS}",
            )
        if stop in prefix:
            raise _wrong("stop_sequences", "one of them is in the target prefix")
    return stops


def _prefix_field(options: Options) -> str:
    return "target_prefix_tokens" if options.target_prefix_tokens else "target_prefix"


def _prefix(options: Options, tokens: _Tokens, longest: int) -> tuple[int, ...]:
    field = _prefix_field(options)
    if options.target_prefix_tokens:
        if options.HasField("target_prefix"):
            raise _wrong(field, "are given beside target_prefix; give one of them")
        prefix = tokens.ids(field, options.target_prefix_tokens)
    else:
        prefix = tokens.prefix_of(options.target_prefix) if options.target_prefix else []
    if len(prefix) >= longest:
        raise _wrong(
            field,
            f"has {len(prefix)} tokens, which leaves none to generate: max_decoding_length is"
            f" {longest}",
        )
    return tuple(prefix)
