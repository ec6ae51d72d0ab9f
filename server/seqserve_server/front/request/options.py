"""Converts the options of a request for the engine.

Options of the same name and meaning on both sides are copied by reflection, so only those that
need the model or another form are written out here.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from google.protobuf import json_format

from seqserve.declarations import DECLARATIONS
from seqserve.v1 import generation_pb2
from seqserve_server.artifact.manifest import Manifest
from seqserve_server.contract.bounds import check_bounds
from seqserve_server.contract.errors import InvalidRequest
from seqserve_server.contract.options import DecodingOptions, Sampling
from seqserve_server.contract.request import Priority
from seqserve_server.front.models.loaded_model import LoadedModel
from seqserve_server.front.request.capitals import lowers_capitals
from seqserve_server.front.request.drafts import TargetDrafts
from seqserve_server.front.request.kept_spans import KeptTexts
from seqserve_server.front.request.languages import Affixes, affixes_of
from seqserve_server.front.request.rules import check_rules
from seqserve_server.front.request.splitting import Segmentation, has_prefix, segmentation_of
from seqserve_server.front.request.terms import TokenIds, target_ids
from seqserve_server.text.tokenizer import Tokenizer

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


class RequestOptions(NamedTuple):
    """What the options of a request mean for a model."""

    decoding: DecodingOptions
    affixes: Affixes
    """What the model reads and writes beside each source."""
    segmentation: Segmentation | None
    """How sources are divided; None for not at all."""
    kept: KeptTexts = KeptTexts()
    """What comes back as it is."""
    drafts: TargetDrafts = TargetDrafts()
    """What targets may be."""
    lowers_capitals: bool = False
    """Whether texts in capitals are read in small letters."""


def converted_options(
    options: Options, manifest: Manifest, tokenizer: Tokenizer, max_rows: int
) -> RequestOptions:
    """Checks the options of a request, over those that its model recommends, and converts them.

    The decoding options have all terms of the request;
    :class:`~seqserve_server.front.request.terms.Terms` keeps those that a source contains.

    Raises:
        InvalidRequest: An option is wrong.
    """
    sent = options
    if manifest.generation:
        options = with_defaults(sent, manifest)
    if not (options.ByteSize() or manifest.template):
        return RequestOptions(default_options(manifest), Affixes(), segmentation=None)
    check_bounds(options)
    affixes = affixes_of(options.source_language, options.target_language, manifest, tokenizer)
    decoding = _converted(options, manifest, tokenizer, affixes)
    check_rules(options, decoding, manifest, max_rows)
    return RequestOptions(
        decoding,
        affixes,
        segmentation_of(options, sent),
        KeptTexts(options),
        TargetDrafts.of(options, decoding, tokenizer),
        lowers_capitals(options),
    )


def priority_of(priority: int) -> Priority:
    """Converts the priority of a request; unspecified is normal."""
    try:
        return _PRIORITIES[priority]
    except KeyError:
        reason = f"{priority} is not known to this server; it knows NORMAL and LOW"
        raise InvalidRequest("priority", reason) from None


def _converted(
    options: Options, manifest: Manifest, tokenizer: Tokenizer, affixes: Affixes
) -> DecodingOptions:
    sent = {field.name: value for field, value in options.ListFields()}
    copied = {name: sent[name] for name in sent if name in _COPIED}
    end_ids = _ids(options, "end_tokens", tokenizer)
    vocabulary = set(_ids(options, "vocabulary_allow", tokenizer))
    if vocabulary:
        vocabulary.update(end_ids or (manifest.tokens.eos,))
    prefix = affixes.target + _prefix(options, tokenizer)
    copied.setdefault("max_decoding_length", manifest.limits.max_target_length)
    return DecodingOptions(
        **copied,
        sampling=_sampling(sent),
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


def _prefix(options: Options, tokenizer: Tokenizer) -> TokenIds:
    prefix = _ids(options, "target_prefix_tokens", tokenizer)
    if options.target_prefix and not prefix:
        prefix = tuple(tokenizer.encode_target(options.target_prefix)[:-1])
    return prefix


def _sampling(sent: dict[str, Any]) -> Sampling | None:
    sampling = {name: sent[name] for name in sent if name in Sampling._fields}
    if not sampling:
        return None
    return Sampling(**{**_SAMPLING_DEFAULTS, "seed": secrets.randbits(64), **sampling})


def _suppressed(options: Options, manifest: Manifest, tokenizer: Tokenizer) -> tuple[TokenIds, ...]:
    field = "suppress_sequences"
    sequences: list[TokenIds] = [(id_,) for id_ in _ids(options, "suppress_tokens", tokenizer)]
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


# A request that samples, or asks for alternatives, has chosen another way to search.
_BEAM_SEARCH = [each.name for each in DECLARATIONS.values() if each.group == "beam search"]
_OTHER_WAYS = (*Sampling._fields, "return_alternatives")


def with_defaults(options: Options, manifest: Manifest) -> Options:
    """Returns the options of a request over those that its model recommends."""
    defaults = json_format.ParseDict(manifest.generation, Options())
    if any(options.HasField(name) for name in _OTHER_WAYS):
        for name in _BEAM_SEARCH:
            defaults.ClearField(name)
    # A prefix belongs to one text, so that beside it the default is not to divide a source.
    if has_prefix(options):
        defaults.ClearField("segmentation")
    defaults.MergeFrom(options)
    return defaults


# Longer options mostly hold texts of one request, which do not come again.
_MAX_BYTES = 128
_MAX_ENTRIES = 256


def read_options(options: Options, model: LoadedModel) -> RequestOptions:
    """Checks the options of a request and converts them.

    Callers send the same options again and again, and the conversion takes a tenth of the time of a
    call; so the model keeps what they were converted to.

    Raises:
        InvalidRequest: An option is wrong.
    """
    sent = options.SerializeToString()
    known: RequestOptions | None = model.known_options.get(sent)
    if known is not None:
        return known
    max_rows = model.engine.capacity.max_rows
    read = converted_options(options, model.manifest, model.tokenizer, max_rows)
    # A random seed must be another one each time.
    if len(sent) <= _MAX_BYTES and read.decoding.sampling is None:
        if len(model.known_options) >= _MAX_ENTRIES:
            model.known_options.clear()
        model.known_options[sent] = read
    return read
