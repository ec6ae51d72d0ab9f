"""Converts the options of a request for the engine.

Options of the same name and meaning on both sides are copied by reflection, so only those that
need the model or another form are written out here.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.manifest import Manifest
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import Priority
from seqserve_server.contract.tokenizer import Tokenizer
from seqserve_server.front.rpc.options.bounds import check_bounds
from seqserve_server.front.rpc.options.defaults import with_defaults
from seqserve_server.front.rpc.options.languages import affixes_of
from seqserve_server.front.rpc.options.rules import check_rules
from seqserve_server.front.rpc.options.terms import TokenIds, target_ids

Options = generation_pb2.GenerationOptions

_MAX_STOP_CHARACTERS = 256
_PRIORITIES: dict[int, Priority] = {
    generation_pb2.PRIORITY_UNSPECIFIED: Priority.NORMAL,
    generation_pb2.PRIORITY_NORMAL: Priority.NORMAL,
    generation_pb2.PRIORITY_LOW: Priority.LOW,
}
_CONVERTED = {"terms", "return_attention"}
_COPIED = {field.name for field in fields(DecodingOptions)} & DECLARATIONS.keys() - _CONVERTED
_SAMPLING_DEFAULTS = {name: DECLARATIONS[name].default for name in Sampling._fields}


def default_options(manifest: Manifest) -> DecodingOptions:
    """Returns the options of a request that sets none."""
    return DecodingOptions(max_decoding_length=manifest.limits.max_target_length)


def decoding_options(
    options: Options, manifest: Manifest, tokenizer: Tokenizer, max_rows: int
) -> DecodingOptions:
    """Checks the options of a request and converts them for the engine.

    The result has all terms of the request;
    :func:`~seqserve_server.front.rpc.options.terms.for_source` keeps those that a source contains.
    """
    if manifest.generation:
        options = with_defaults(options, manifest)
    if not (options.ByteSize() or manifest.template):
        return default_options(manifest)
    check_bounds(options)
    decoding = _converted(options, manifest, tokenizer)
    check_rules(options, decoding, manifest, max_rows)
    return decoding


def priority_of(priority: int) -> Priority:
    """Converts the priority of a request; unspecified is normal."""
    try:
        return _PRIORITIES[priority]
    except KeyError:
        reason = f"{priority} is not known to this server; it knows NORMAL and LOW"
        raise InvalidRequest("priority", reason) from None


def _converted(options: Options, manifest: Manifest, tokenizer: Tokenizer) -> DecodingOptions:
    given = {field.name: value for field, value in options.ListFields()}
    copied = {name: given[name] for name in given if name in _COPIED}
    end_ids = _ids(options, "end_tokens", tokenizer)
    vocabulary = set(_ids(options, "vocabulary_allow", tokenizer))
    if vocabulary:
        vocabulary.update(end_ids or (manifest.tokens.eos,))
    prefix = _prefix(options, manifest, tokenizer)
    copied.setdefault("max_decoding_length", manifest.limits.max_target_length)
    return DecodingOptions(
        **copied,
        sampling=_sampling(given),
        suppressed=_suppressed(options, manifest, tokenizer),
        end_ids=end_ids,
        stops=_stops(options, tokenizer.decode(prefix) if prefix else ""),
        prefix=prefix,
        terms=target_ids(options.terms, tokenizer),
        vocabulary=tuple(sorted(vocabulary)),
        return_attention=options.return_attention
        or options.return_alignment
        or options.replace_unknowns,
        time_limit_s=options.time_limit_ms / 1e3 if options.time_limit_ms else math.inf,
    )


def _prefix(options: Options, manifest: Manifest, tokenizer: Tokenizer) -> TokenIds:
    """Returns the tokens that the model wants first, then those that the request wants."""
    wanted = affixes_of(options.source_language, options.target_language, manifest, tokenizer)
    prefix = _ids(options, "target_prefix_tokens", tokenizer)
    if options.target_prefix and not prefix:
        prefix = tuple(tokenizer.encode_target(options.target_prefix)[:-1])
    return wanted.target + prefix


def _sampling(given: dict[str, Any]) -> Sampling | None:
    sampling = {name: given[name] for name in given if name in Sampling._fields}
    if not sampling:
        return None
    return Sampling(**{**_SAMPLING_DEFAULTS, "seed": secrets.randbits(64), **sampling})


def _suppressed(options: Options, manifest: Manifest, tokenizer: Tokenizer) -> tuple[TokenIds, ...]:
    field = "suppress_sequences"
    sequences: list[TokenIds] = [(one,) for one in _ids(options, "suppress_tokens", tokenizer)]
    for sequence in options.suppress_sequences:
        if not sequence.tokens:
            raise InvalidRequest(f"options.{field}", "has an empty sequence")
        sequences.append(_token_ids(sequence.tokens, field, tokenizer))
    if options.disable_unk:
        sequences.append((manifest.tokens.unk,))
    return tuple(sequences)


def _stops(options: Options, prefix: str) -> tuple[str, ...]:
    for stop in options.stop_sequences:
        if not 1 <= len(stop) <= _MAX_STOP_CHARACTERS:
            reason = f"one has {len(stop)} characters; each has 1 to {_MAX_STOP_CHARACTERS}"
            raise InvalidRequest("options.stop_sequences", reason)
        if stop in prefix:
            raise InvalidRequest("options.stop_sequences", "one of them is in the target prefix")
    return tuple(options.stop_sequences)


def _ids(options: Options, field: str, tokenizer: Tokenizer) -> TokenIds:
    return _token_ids(getattr(options, field), field, tokenizer)


def _token_ids(tokens: Sequence[str], field: str, tokenizer: Tokenizer) -> TokenIds:
    token_ids = []
    for token in tokens:
        token_id = tokenizer.id_of(token)
        if token_id is None:
            reason = f"{token!r:.80} is no token of the model; see the tokens of an answer"
            raise InvalidRequest(f"options.{field}", reason)
        token_ids.append(token_id)
    return tuple(token_ids)
