"""Options of a request as the caller sent them, checked, to those of the engine.

Every field has its bounds in one table; what fields ask of each other is said below it.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from seqserve.v1 import generation_pb2
from seqserve_server.engine.limits import MOST_ENDS, MOST_RANKS, MOST_SUPPRESSED
from seqserve_server.engine.request import DecodingOptions, Sampling
from seqserve_server.errors import InvalidRequest
from seqserve_server.manifest import Manifest
from seqserve_server.tokenizer import Tokenizer

Options = generation_pb2.GenerationOptions

_MOST_STOPS = 16
_MOST_STOP_CHARACTERS = 256


@dataclass(frozen=True, slots=True)
class _Bounds:
    """What a number may be."""

    default: float
    least: float
    most: float = math.inf
    above: bool = False
    """Whether the least itself is too little."""

    def holds(self, value: float) -> bool:
        """Tells whether a value is within; what is not a number is not."""
        return self.least <= value <= self.most and not (self.above and value == self.least)

    def __str__(self) -> str:
        """Says what would be right."""
        begin = f"above {self.least:g}" if self.above else f"at least {self.least:g}"
        return begin if math.isinf(self.most) else f"{begin} and at most {self.most:g}"


_BOUNDS = {
    "beam_size": _Bounds(1, 1),
    "patience": _Bounds(1.0, 0.0, 16.0, above=True),
    "length_penalty": _Bounds(1.0, 0.0, 16.0),
    "num_hypotheses": _Bounds(1, 1),
    "temperature": _Bounds(1.0, 0.0, 1000.0, above=True),
    "top_k": _Bounds(0, 0),
    "top_p": _Bounds(1.0, 0.0, 1.0, above=True),
    "min_p": _Bounds(0.0, 0.0, 1.0),
    "repetition_penalty": _Bounds(1.0, 1 / 64, 64.0),
    "no_repeat_ngram_size": _Bounds(0, 0),
    "return_top_tokens": _Bounds(0, 0, MOST_RANKS),
}
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "seed")


def default_options(manifest: Manifest) -> DecodingOptions:
    """Gives what a request without options means."""
    return DecodingOptions(max_decoding_length=manifest.limits.max_target_length)


def decoding_options(
    options: Options, manifest: Manifest, tokenizer: Tokenizer, most_rows: int
) -> DecodingOptions:
    """Checks options and fills in the model's defaults.

    Args:
        options: As the caller sent them.
        manifest: Of the model.
        tokenizer: Of the model.
        most_rows: Slots that one request can have.

    Raises:
        InvalidRequest: One is unknown or out of its bounds, or they contradict each other.
    """
    _refuse_unknown(options)
    if not options.ByteSize():
        return default_options(manifest)
    numbers = {name: _number(options, name, bounds) for name, bounds in _BOUNDS.items()}
    shortest, longest = _lengths(options, manifest)
    sampling = _sampling(options, numbers)
    _check_rows(options, numbers, sampling is not None, most_rows)
    tokens = _Tokens(tokenizer)
    suppressed = _suppressed(options, tokens, manifest)
    ends = _ends(options, tokens)
    prefix = _prefix(options, tokens, longest)
    _check_contradictions(suppressed, ends or (manifest.tokens.eos,), prefix, bool(ends))
    stops = _stops(options, tokenizer.decode(prefix) if prefix else "")
    return DecodingOptions(
        max_decoding_length=longest,
        min_decoding_length=shortest,
        beam_size=int(numbers["beam_size"]),
        patience=numbers["patience"],
        length_penalty=numbers["length_penalty"],
        num_hypotheses=int(numbers["num_hypotheses"]),
        sampling=sampling,
        repetition_penalty=numbers["repetition_penalty"],
        no_repeat_ngram_size=int(numbers["no_repeat_ngram_size"]),
        suppressed=suppressed,
        end_ids=ends,
        stops=stops,
        prefix=prefix,
        return_scores=not options.HasField("return_scores") or options.return_scores,
        return_token_scores=options.return_token_scores,
        return_top_tokens=int(numbers["return_top_tokens"]),
        return_attention=options.return_attention or options.replace_unknowns,
    )


def _wrong(field: str, reason: str) -> InvalidRequest:
    return InvalidRequest(f"options.{field}", reason)


def _refuse_unknown(options: Message) -> None:
    # Options change the answer, so one from a newer client must not be passed over in silence.
    unknown_fields: Any = UnknownFieldSet(options)
    for unknown in unknown_fields:
        raise InvalidRequest(
            "options", f"field {unknown.field_number} is not known to this server; upgrade it"
        )


def _number(options: Options, name: str, bounds: _Bounds) -> float:
    if not options.HasField(name):
        return bounds.default
    value: float = getattr(options, name)
    if not bounds.holds(value):
        raise _wrong(name, f"is {value:g}; it must be {bounds}")
    return value


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


def _check_rows(options: Options, numbers: dict[str, float], samples: bool, most_rows: int) -> None:
    beam_size, count = numbers["beam_size"], numbers["num_hypotheses"]
    if beam_size > most_rows:
        raise _wrong("beam_size", f"is {beam_size:g}; this server keeps at most {most_rows}")
    if samples and beam_size > 1:
        given = next(name for name in _SAMPLING if options.HasField(name))
        raise _wrong("beam_size", f"is {beam_size:g} beside {given}: search or draw, not both")
    if samples and count > most_rows:
        raise _wrong("num_hypotheses", f"is {count:g}; this server draws at most {most_rows}")
    if not samples and count > beam_size:
        raise _wrong(
            "num_hypotheses",
            f"is {count:g}, more than beam_size, which is {beam_size:g}: raise that, or draw"
            " samples with temperature",
        )


def _check_contradictions(
    suppressed: tuple[tuple[int, ...], ...],
    ends: tuple[int, ...],
    prefix: tuple[int, ...],
    ends_given: bool,
) -> None:
    never = {sequence[0] for sequence in suppressed if len(sequence) == 1}
    if ends_given and never.intersection(ends):
        raise _wrong("suppress_tokens", "holds a token that is among end_tokens")
    if never.intersection(prefix):
        raise _wrong("suppress_tokens", "holds a token of the target prefix")
    if set(ends).intersection(prefix):
        raise _wrong("target_prefix", "holds a token that ends a hypothesis")


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
        _refuse_unknown(sequence)
        if not sequence.tokens:
            raise _wrong("suppress_sequences", "holds an empty sequence")
        sequences.append(tuple(tokens.ids("suppress_sequences", sequence.tokens)))
    if len(sequences) > MOST_SUPPRESSED:
        field = "suppress_tokens" if len(found) > MOST_SUPPRESSED else "suppress_sequences"
        raise _wrong(field, f"are {len(sequences)} together; at most {MOST_SUPPRESSED} are taken")
    if options.disable_unk:
        sequences.append((manifest.tokens.unk,))
    return tuple(sequences)


def _ends(options: Options, tokens: _Tokens) -> tuple[int, ...]:
    if len(options.end_tokens) > MOST_ENDS:
        raise _wrong("end_tokens", f"are {len(options.end_tokens)}; at most {MOST_ENDS} are taken")
    return tuple(tokens.ids("end_tokens", options.end_tokens))


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


def _prefix(options: Options, tokens: _Tokens, longest: int) -> tuple[int, ...]:
    field = "target_prefix"
    if options.target_prefix_tokens:
        if options.HasField(field):
            raise _wrong("target_prefix_tokens", "are given beside target_prefix; give one of them")
        field = "target_prefix_tokens"
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
